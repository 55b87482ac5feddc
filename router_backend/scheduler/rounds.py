"""Barrier modes: what serving looked like before asynchronous hand-off, on the same code path.

Step-sync: a round starts every model that anybody waits for, and the next one begins when the slowest
has ended. Model-sync: one model at a time, the largest that anybody waits for. They exist to be
compared with (arXiv:2610.12242, section 6.3); they need a leader, which asynchronous modes do not.

Model 0 leads. A model reports its queue when it leaves zero and after each of its steps, with what it
handed to whom; the leader answers with `Go`. Overestimates correct themselves: a model that is started
with nothing to run reports at once.
"""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field
from enum import Enum

from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Report

LEADER = ModelIndex(0)


class Mode(str, Enum):
    """How the models of a deployment take turns."""

    DELAYED = "delayed"
    EAGER_ASYNC = "eager_async"
    STEP_SYNC = "step_sync"
    MODEL_SYNC = "model_sync"

    @property
    def is_barrier(self) -> bool:
        return self in (Mode.STEP_SYNC, Mode.MODEL_SYNC)

    def in_force(self, thresholds: Sequences[int]) -> tuple[int, ...]:
        """The thresholds that the mode uses: only delayed batching waits for more than one."""
        return tuple(thresholds) if self is Mode.DELAYED else (1,) * len(thresholds)


@dataclass(slots=True)
class Rounds:
    """The leader's view: who waits, as far as it has heard, and who still runs."""

    mode: Mode
    waiting: list[int]
    running: set[ModelIndex] = field(default_factory=set)

    def hear(self, report: Report) -> list[ModelIndex]:
        """Take a report; the models to start now, none while the round is not over."""
        self.waiting[report.source] = report.waiting
        for model, count in enumerate(report.sent):
            self.waiting[model] += count
        if report.is_step_over:
            self.running.discard(report.source)
        return self._next()

    def lose(self, model: ModelIndex) -> list[ModelIndex]:
        """A model is gone: nobody waits for its step."""
        self.waiting[model] = 0
        self.running.discard(model)
        return self._next()

    def _next(self) -> list[ModelIndex]:
        if self.running:
            return []
        ready = [ModelIndex(model) for model, count in enumerate(self.waiting) if count > 0]
        started = ready[-1:] if self.mode is Mode.MODEL_SYNC else ready
        self.running.update(started)
        return started
