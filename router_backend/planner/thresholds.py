"""Which thresholds to use: the feasible set, its predictions, and the choice with its reasons.

Source: arXiv:2610.12242, Appendix D for the feasible set. The choice differs from the paper's: among
thresholds within 1 % of the best it takes the smallest, because the curve is flat below its peak and
falls off a cliff above it, so that overshoot costs far more than undershoot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import product

from router_backend.core.errors import CapacityError, ConfigError
from router_backend.planner.latency import step_table
from router_backend.planner.monte_carlo import Effort, simulate_best
from router_backend.planner.prediction import Prediction
from router_backend.planner.rounding import TickTable, common_quantum_ms, exact_ticks, rounded_ticks
from router_backend.planner.system import System, checked_concurrency
from router_backend.planner.throughput import predict

Thresholds = tuple[int, ...]

# Up to this many requests every threshold is tried; beyond, about `SPARSE_COUNT` of them per model.
DENSE_MAX = 16
SPARSE_COUNT = 10


class Method(Enum):
    """How a set of predictions was computed."""

    EXACT_CHAIN = "exact_chain"
    ROUNDED_CHAIN = "rounded_chain"
    SIMULATION = "simulation"


class Reason(Enum):
    """Why these thresholds were chosen."""

    ALONE = "alone"
    BEST = "best"
    SMALLER_NEARLY_AS_GOOD = "smaller_nearly_as_good"
    GAP_TARGET = "gap_target"
    NO_CANDIDATE_MEETS_GAP_TARGET = "no_candidate_meets_gap_target"


@dataclass(frozen=True, slots=True)
class Search:
    """How to search.

    tolerance            a smaller threshold may cost this share of the best throughput
    gap_ms_max           largest predicted token gap (`Prediction.gap_ms`), or None
    exact_state_limit    largest chain to solve with exact latencies; larger ones are rounded
    rounded_state_limit  largest chain to solve with rounded latencies; larger ones are simulated
    effort               length of the simulation, where it comes to that
    seed                 of the simulation
    """

    tolerance: float = 0.01
    gap_ms_max: float | None = None
    exact_state_limit: int = 60_000
    rounded_state_limit: int = 60_000
    effort: Effort = field(default_factory=Effort)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.tolerance < 1.0:
            raise ConfigError(f"tolerance: must be at least 0 and below 1, got {self.tolerance:g}")
        if self.gap_ms_max is not None and not self.gap_ms_max > 0.0:
            raise ConfigError(f"gap_ms_max: must be above 0 ms, got {self.gap_ms_max:g}")


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer for one number of live requests; `predictions` holds every candidate, best first."""

    concurrency: int
    method: Method
    reason: Reason
    chosen: Prediction
    predictions: tuple[Prediction, ...]

    @property
    def best(self) -> Prediction:
        """The candidate with the highest throughput, whatever its gap."""
        return self.predictions[0]

    @property
    def eager(self) -> Prediction:
        """All thresholds 1: every model starts as soon as anyone waits."""
        return next(one for one in self.predictions if set(one.thresholds) == {1})

    def prediction(self, thresholds: Thresholds) -> Prediction | None:
        """The prediction of these thresholds, if they were a candidate."""
        return next((one for one in self.predictions if one.thresholds == thresholds), None)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A choice in figures; shares are relative, 0.05 = 5 %.

    gain            throughput of the choice over all thresholds 1
    given_up        throughput below the best candidate
    overshoot_loss  worst loss from raising any one threshold one step; None where none can be raised
    """

    thresholds: Thresholds
    reason: Reason
    method: Method
    gain: float
    given_up: float
    overshoot_loss: float | None
    candidate_count: int


def feasible_thresholds(concurrency: int, caps: Sequence[int]) -> Iterator[Thresholds]:
    """Vectors with sum(threshold - 1) < concurrency and threshold <= cap, smallest first per model.

    Up to 16 requests all of them; beyond, every k-th value per model and always 1.
    """
    stride = 1 if checked_concurrency(concurrency) <= DENSE_MAX else concurrency // SPARSE_COUNT
    axes = [sorted({1, *range(stride, min(cap, concurrency) + 1, stride)}) for cap in caps]
    return (vector for vector in product(*axes) if sum(vector) - len(vector) < concurrency)


def plan(system: System, concurrency: int, search: Search | None = None) -> Plan:
    """Predict every candidate and choose."""
    search = search or Search()
    candidates = list(feasible_thresholds(concurrency, system.caps(concurrency)))
    method, predictions = _predict_all(system, candidates, concurrency, search)
    ranked = sorted(predictions, key=lambda one: (-one.throughput, sum(one.thresholds), one.thresholds))
    reason, chosen = choose(ranked, search)
    return Plan(concurrency, method, Reason.ALONE if concurrency == 1 else reason, chosen, tuple(ranked))


def choose(ranked: Sequence[Prediction], search: Search) -> tuple[Reason, Prediction]:
    """The smallest candidate within the tolerance of the best that meets the gap target."""
    limit_ms = float("inf") if search.gap_ms_max is None else search.gap_ms_max
    allowed = [one for one in ranked if one.gap_ms <= limit_ms]
    if not allowed:
        return Reason.NO_CANDIDATE_MEETS_GAP_TARGET, min(ranked, key=lambda one: one.gap_ms)
    floor = allowed[0].throughput * (1.0 - search.tolerance)
    good = [one for one in allowed if one.throughput >= floor]
    chosen = min(good, key=lambda one: (sum(one.thresholds), -one.throughput))
    if allowed[0] is not ranked[0]:
        return Reason.GAP_TARGET, chosen
    return (Reason.BEST if chosen is ranked[0] else Reason.SMALLER_NEARLY_AS_GOOD), chosen


def explain(plan: Plan) -> Explanation:
    """The reasons behind a plan, as data."""
    chosen = plan.chosen
    losses = [1.0 - one.throughput / chosen.throughput for one in _raised(plan)]
    return Explanation(
        thresholds=chosen.thresholds,
        reason=plan.reason,
        method=plan.method,
        gain=chosen.throughput / plan.eager.throughput - 1.0,
        given_up=1.0 - chosen.throughput / plan.best.throughput,
        overshoot_loss=max(losses, default=None),
        candidate_count=len(plan.predictions),
    )


def _raised(plan: Plan) -> Iterator[Prediction]:
    """The candidates one step above the choice, each in one model only."""
    chosen = plan.chosen.thresholds
    for model in range(len(chosen)):
        others = chosen[:model] + chosen[model + 1 :]
        higher = [
            one
            for one in plan.predictions
            if one.thresholds[:model] + one.thresholds[model + 1 :] == others
            and one.thresholds[model] > chosen[model]
        ]
        if higher:
            yield min(higher, key=lambda one: one.thresholds)


def _predict_all(
    system: System, candidates: Sequence[Thresholds], concurrency: int, search: Search
) -> tuple[Method, list[Prediction]]:
    """All candidates by one method, so that they compare: the most exact one that is affordable.

    All thresholds 1 has by far the largest chain, and comes first: it decides the method.
    """
    for method, ticks, limit in _chains(system, concurrency, search):
        try:
            return method, [predict(system, one, concurrency, ticks, limit) for one in candidates]
        except CapacityError:
            continue
    return Method.SIMULATION, simulate_best(system, candidates, concurrency, search.seed, search.effort)


def _chains(system: System, concurrency: int, search: Search) -> Iterator[tuple[Method, TickTable, int]]:
    step_ms = step_table(system.latencies, concurrency)
    quantum_ms = common_quantum_ms(step_ms)
    if quantum_ms is not None:
        yield Method.EXACT_CHAIN, exact_ticks(step_ms, quantum_ms), search.exact_state_limit
    yield Method.ROUNDED_CHAIN, rounded_ticks(step_ms), search.rounded_state_limit
