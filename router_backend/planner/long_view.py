"""What a running server has shown over the last minutes: the prior of the quick estimate.

Faded sums of what every model reported. A step time is taken as rising linearly with the batch, unless a
measured profile is given. Answers nothing before every model has run some steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from router_backend.planner.estimate import StepSums
from router_backend.planner.latency import StepLatency, constant, sloped
from router_backend.planner.routing import Routing
from router_backend.planner.system import System

HALF_LIFE_S = 60.0
STEPS_MIN = 10.0
BATCH_VARIANCE_MIN = 0.1
"""Of the observed batch sizes: below, they tell nothing about a slope."""


class Seen(Protocol):
    """What one model did lately: `router_backend.handoff.message.Observation`."""

    @property
    def source(self) -> int: ...
    @property
    def live(self) -> int: ...
    @property
    def destinations(self) -> Sequence[int]: ...
    @property
    def committed(self) -> int: ...
    @property
    def steps(self) -> StepSums: ...


@dataclass(slots=True)
class _Sums:
    """Of one model: rows by destination, tokens, and (steps, milliseconds) by batch size."""

    routes: list[float]
    committed: float = 0.0
    steps: dict[int, tuple[float, float]] = field(default_factory=dict)

    def fade(self, keep: float) -> None:
        self.routes = [count * keep for count in self.routes]
        self.committed *= keep
        self.steps = {batch: (count * keep, ms * keep) for batch, (count, ms) in self.steps.items()}

    def add(self, seen: Seen) -> None:
        self.routes = [old + new for old, new in zip(self.routes, seen.destinations, strict=True)]
        self.committed += seen.committed
        for batch, count, total_ms in seen.steps:
            before, before_ms = self.steps.get(batch, (0.0, 0.0))
            self.steps[batch] = (before + count, before_ms + total_ms)

    @property
    def step_count(self) -> float:
        return sum(count for count, _ in self.steps.values())


class LongView:
    """`latencies` are those of a measured profile, or None to learn them."""

    def __init__(
        self, batch_max: tuple[int, ...], latencies: tuple[StepLatency, ...] | None, now: float
    ) -> None:
        self._batch_max = batch_max
        self._latencies = latencies
        self._sums = [_Sums([0.0] * len(batch_max)) for _ in batch_max]
        self._at = now

    def observe(self, seen: Seen, now: float) -> None:
        keep = 0.5 ** (max(now - self._at, 0.0) / HALF_LIFE_S)
        self._at = max(now, self._at)
        for sums in self._sums:
            sums.fade(keep)
        self._sums[seen.source].add(seen)

    def system(self) -> System | None:
        """The average system, or None while a model has hardly run; ConfigError when it falls apart into
        groups of models that requests never leave."""
        if min(sums.step_count for sums in self._sums) < STEPS_MIN:
            return None
        probabilities = tuple(_shares(sums.routes) for sums in self._sums)
        commits = tuple(_commits(model, sums) for model, sums in enumerate(self._sums))
        latencies = self._latencies or tuple(fitted(sums.steps) for sums in self._sums)
        return System(Routing(probabilities, commits), latencies, self._batch_max)


def fitted(steps: dict[int, tuple[float, float]]) -> StepLatency:
    """The least-squares line through (steps, milliseconds of all) by batch size, never falling."""
    weight = sum(count for count, _ in steps.values())
    mean_batch = sum(count * batch for batch, (count, _) in steps.items()) / weight
    mean_ms = sum(total_ms for _, total_ms in steps.values()) / weight
    spread = sum(count * (batch - mean_batch) ** 2 for batch, (count, _) in steps.items())
    if spread < BATCH_VARIANCE_MIN * weight:
        return constant(mean_ms)
    slope_ms = sum((batch - mean_batch) * total_ms for batch, (_, total_ms) in steps.items()) / spread
    # A line that would start below a tenth of the mean says more about noise than about batch 1.
    slope_ms = min(max(slope_ms, 0.0), 0.9 * mean_ms / max(mean_batch - 1.0, 1e-9))
    return sloped(mean_ms - slope_ms * (mean_batch - 1.0), slope_ms)


def _shares(routes: Sequence[float]) -> tuple[float, ...]:
    total = sum(routes)
    return tuple(count / total for count in routes)


def _commits(model: int, sums: _Sums) -> tuple[float, ...]:
    """One token for a request that stays; what is left of the committed ones for those that leave."""
    stayed = sums.routes[model]
    left = sum(sums.routes) - stayed
    share = min(max((sums.committed - stayed) / left, 0.0), 1.0) if left > 0.0 else 0.0
    return tuple(1.0 if target == model else share for target in range(len(sums.routes)))
