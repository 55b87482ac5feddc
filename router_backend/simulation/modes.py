"""Who may launch when: asynchronous subservers, or a barrier between their steps.

Asynchronous with thresholds of 1 is eager batching, with larger ones delayed batching. The two
barriers are what others do (arXiv:2610.12242, section 2): they exist to be compared with.
"""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from enum import Enum


class Mode(str, Enum):
    ASYNC = "async"
    STEP_SYNC = "step_sync"
    """All models with work step together; the next round starts when the slowest has ended."""
    MODEL_SYNC = "model_sync"
    """One batch at a time: of the largest model for which anybody waits."""


def launchable(mode: Mode, is_running: Sequences[bool], ready: Sequences[int]) -> list[int]:
    """The models that may decide on a launch now; `ready[m]` requests wait at model m."""
    if mode is Mode.ASYNC:
        return [model for model, running in enumerate(is_running) if not running]
    if any(is_running):
        return []
    waited_for = [model for model, waiting in enumerate(ready) if waiting]
    return waited_for if mode is Mode.STEP_SYNC else waited_for[-1:]
