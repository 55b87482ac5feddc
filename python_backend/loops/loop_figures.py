"""What a decode loop counts of itself: turns, steps and how long they took, and whether it gets on.

Written by the loop's thread. `stalled_s` may be asked by any thread, also while a step hangs: that is what
it is for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from router_backend.core.histogram import BRIEF, SECONDS, Histogram
from router_backend.scheduler.batch import BatchPlan


class Phase(str, Enum):
    """What a step fed. A prompt, a peer's suffix and a recomputation are all an extension."""

    DECODE = "decode"
    """One token per row."""
    EXTEND = "extend"
    """More than one token per row."""
    MIXED = "mixed"


def phase_of(plan: BatchPlan) -> Phase:
    fed = [len(row.token_ids) for row in plan.rows]
    if max(fed, default=1) == 1:
        return Phase.DECODE
    return Phase.MIXED if min(fed) == 1 else Phase.EXTEND


class Lag:
    """How late a loop comes back to what it does at fixed times; a loop that is held up shows here."""

    def __init__(self) -> None:
        self.spread = Histogram(BRIEF)

    def note(self, due_at: float, now: float) -> None:
        """`due_at` is minus infinity before the first time."""
        if due_at > float("-inf"):
            self.spread.observe(max(0.0, now - due_at))


def _steps() -> dict[Phase, Histogram]:
    return {phase: Histogram(SECONDS) for phase in Phase}


@dataclass(slots=True)
class LoopFigures:
    """Times in seconds on the loop's clock."""

    turns: int = 0
    steps: int = 0
    loop_errors: int = 0
    runner_errors: int = 0
    step_s: dict[Phase, Histogram] = field(default_factory=_steps, compare=False)
    lag: Lag = field(default_factory=Lag, compare=False)
    progressed_at: float | None = field(default=None, compare=False)
    """When the last step ended, or the first began; None while there is nothing to run."""

    def begin_step(self, now: float) -> None:
        if self.progressed_at is None:
            self.progressed_at = now

    def end_step(self, plan: BatchPlan, started_at: float, ended_at: float) -> None:
        self.steps += 1
        self.progressed_at = ended_at
        self.step_s[phase_of(plan)].observe(ended_at - started_at)

    def stalled_s(self, now: float) -> float:
        """How long something has been there to run and no step has ended."""
        progressed_at = self.progressed_at
        return 0.0 if progressed_at is None else max(0.0, now - progressed_at)
