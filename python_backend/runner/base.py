"""The seam between the scheduler and an engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from router_backend.handoff.message import DRAFT_MAX
from router_backend.scheduler.batch import BatchPlan, StepOutput


@dataclass(frozen=True, slots=True)
class RunnerInfo:
    """What the rest of the system must know about an engine."""

    vocab_size: int
    """Real vocabulary: ids at or above it are padding and are never sampled."""
    length_max: int
    """Longest sequence in tokens, prompt and answer together."""
    num_blocks: int
    block_size: int
    eos_ids: frozenset[int]
    hidden_size: int = 0
    draft_max: int = DRAFT_MAX
    """Longest draft that it can read in a step (`python_backend.runner.drafts`); 0 = none."""


class ModelRunner(Protocol):
    """An engine that runs one step at a time. One thread calls it, ever."""

    info: RunnerInfo

    def execute(self, plan: BatchPlan) -> StepOutput:
        """Run every row of the plan; RunnerError ends the requests of this batch and no others."""
        ...

    def close(self) -> None: ...
