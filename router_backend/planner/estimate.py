"""What the running server has shown lately: P and t_m(b) from decayed observations around a prior.

Old observations fade with a half-life, so that the estimate follows the traffic; where nothing was
seen lately it returns to the prior. Owned by one thread: pass the `System` on, not the estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency
from router_backend.planner.routing import Matrix, Routing
from router_backend.planner.system import System

StepSums = Sequence[tuple[int, int, float]]
"""(requests in the batch, number of such steps, milliseconds of all of them)."""


@dataclass(frozen=True, slots=True)
class Fading:
    """How fast observations fade, and how many of them the prior is worth.

    half_life_s       an observation counts half after this time
    warm_half_life_s  the same for `observed_steps`, which only asks whether there was traffic lately
    prior_routes      decisions of each model that the prior of P is worth
    prior_steps       steps of each batch size that the prior of t_m(b) is worth
    """

    half_life_s: float = 0.5
    warm_half_life_s: float = 10.0
    prior_routes: float = 10.0
    prior_steps: float = 5.0

    def __post_init__(self) -> None:
        if not min(self.half_life_s, self.warm_half_life_s, self.prior_routes, self.prior_steps) > 0.0:
            raise ConfigError("fading: every half-life and every prior must be above 0")


class _ModelRecord:
    """Faded sums of one model: routes by destination, steps and milliseconds by batch size."""

    def __init__(self, model_count: int, now: float) -> None:
        self.at = now
        self.warmth = 0.0
        self.routes = [0.0] * model_count
        self.steps: dict[int, float] = {}
        self.total_ms: dict[int, float] = {}

    def fade(self, fading: Fading, now: float) -> None:
        elapsed_s = max(now - self.at, 0.0)
        self.at = max(now, self.at)
        self.warmth *= 0.5 ** (elapsed_s / fading.warm_half_life_s)
        keep = 0.5 ** (elapsed_s / fading.half_life_s)
        self.routes = [count * keep for count in self.routes]
        self.steps = {batch: count * keep for batch, count in self.steps.items()}
        self.total_ms = {batch: total * keep for batch, total in self.total_ms.items()}

    def add(self, destinations: Sequence[int], steps: StepSums) -> None:
        self.routes = [old + new for old, new in zip(self.routes, destinations, strict=True)]
        for batch, count, total_ms in steps:
            self.warmth += count
            self.steps[batch] = self.steps.get(batch, 0.0) + count
            self.total_ms[batch] = self.total_ms.get(batch, 0.0) + total_ms


class SystemEstimate:
    """Follows one set of models; `prior` is the offline profile and the configured routing."""

    def __init__(self, prior: System, now: float, fading: Fading | None = None) -> None:
        self._prior = prior
        self._fading = fading or Fading()
        self._records = [_ModelRecord(prior.model_count, now) for _ in prior.latencies]

    def observe(self, model: int, destinations: Sequence[int], step_ms: float, now: float) -> None:
        """One step of `model` ended: how many of its requests go to each model, and how long it took.

        A request that ended with this step counts as going to the entry: under load another one
        takes its place. `now` is in seconds of any monotonic clock.
        """
        self.observe_steps(model, destinations, ((sum(destinations), 1, step_ms),), now)

    def observe_steps(self, model: int, destinations: Sequence[int], steps: StepSums, now: float) -> None:
        """The same for the sums of several steps, which count as having ended at `now`."""
        for batch, count, total_ms in steps:
            if batch < 1 or count < 1 or not total_ms > 0.0:
                raise ConfigError(f"step: {count} of a batch of {batch} and {total_ms:g} ms cannot be")
        record = self._records[model]
        record.fade(self._fading, now)
        record.add(destinations, steps)

    def rebase(self, prior: System) -> None:
        """Take another prior; what was observed stays."""
        self._prior = prior

    def observed_steps(self, now: float) -> float:
        """Faded number of steps behind the model that was seen least: near 0 when cold."""
        self._fade_all(now)
        return min(record.warmth for record in self._records)

    def system(self, now: float) -> System:
        """The estimate, as what the planner takes."""
        self._fade_all(now)
        routing = Routing(self._probabilities(), self._prior.routing.commits)
        pairs = zip(self._prior.latencies, self._records, strict=True)
        latencies = tuple(self._latency(prior, record) for prior, record in pairs)
        return System(routing, latencies, self._prior.batch_max)

    def _fade_all(self, now: float) -> None:
        for record in self._records:
            record.fade(self._fading, now)

    def _probabilities(self) -> Matrix:
        rows = zip(self._prior.routing.probabilities, self._records, strict=True)
        return tuple(self._row(prior, record.routes) for prior, record in rows)

    def _row(self, prior: Sequence[float], routes: Sequence[float]) -> tuple[float, ...]:
        weight = self._fading.prior_routes
        total = weight + sum(routes)
        return tuple((weight * p + seen) / total for p, seen in zip(prior, routes, strict=True))

    def _latency(self, prior: StepLatency, record: _ModelRecord) -> StepLatency:
        """Seen batch sizes pull their own point; the others follow the overall ratio seen / prior."""
        expected_ms = sum(count * prior.step_ms(batch) for batch, count in record.steps.items())
        weight_ms = self._fading.prior_steps * prior.step_ms(1)
        scale = (weight_ms + sum(record.total_ms.values())) / (weight_ms + expected_ms)
        batches = sorted({batch for batch, _ in prior.points} | record.steps.keys())
        return StepLatency(tuple((batch, self._point(prior, record, batch, scale)) for batch in batches))

    def _point(self, prior: StepLatency, record: _ModelRecord, batch: int, scale: float) -> float:
        weight = self._fading.prior_steps
        seen_ms = record.total_ms.get(batch, 0.0)
        return (weight * scale * prior.step_ms(batch) + seen_ms) / (weight + record.steps.get(batch, 0.0))
