"""The leader's side of adaptive thresholds: from what the models report to the table that all use.

Puts together the estimate, the solutions and the controller; the caller brings the time, decides when to
solve and carries the result. While nothing is known, while traffic drains or a model is silent, all
thresholds are 1. Invariant: a row of the table comes from a solution that is not older than `fresh_s`, for
at most as many live requests, and is therefore feasible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field, replace

from router_backend.core.errors import ConfigError
from router_backend.planner.controller import Cause, Controller, ControllerSettings, Situation
from router_backend.planner.estimate import Fading, SystemEstimate
from router_backend.planner.latency import StepLatency, constant
from router_backend.planner.long_view import LongView, Seen
from router_backend.planner.routing import Routing, mixture
from router_backend.planner.sparse_plan import sparse_plan
from router_backend.planner.system import System
from router_backend.planner.threshold_table import TABLE_SEARCH, ThresholdTable
from router_backend.planner.thresholds import Plan, Search, Thresholds, plan
from router_backend.planner.watchdog import WatchdogSettings

COUNTS = (*range(2, 13), 14, 16, 20, 24, 32, 48, 64)
"""Live counts that are solved; the last one also serves for more."""
EXACT_MAX = 12
"""Up to here every threshold is tried on the exact chain, in at most a tenth of a second."""

# Reports come five times a second: a window must be long enough to tell them apart.
WATCHDOG = WatchdogSettings(interval_s=60.0, window_s=1.0, settle_share=0.4)
CONTROLLER = ControllerSettings(solve_near_s=0.2, watchdog=WATCHDOG)
AGREEING = 3
"""Solutions of the present count that come before all others when traffic has changed: a raise takes two."""


@dataclass(frozen=True, slots=True)
class AdaptationSettings:
    """Times in seconds.

    calm_s    time between solutions of the present count while traffic stays as it is
    fresh_s   oldest solution that is used
    moved_p   a solution is used no more when an estimated probability has moved by this much since; half
              of it ends the calm
    drain_s   thresholds are 1 while fewer than half of the requests of this long ago are live
    silent_s  longest silence of a model that still counts as traffic
    """

    controller: ControllerSettings = CONTROLLER
    fading: Fading = field(default_factory=lambda: Fading(half_life_s=0.3))
    search: Search = TABLE_SEARCH
    counts: tuple[int, ...] = COUNTS
    calm_s: float = 2.0
    fresh_s: float = 20.0
    moved_p: float = 0.15
    drain_s: float = 1.0
    silent_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds now: row i of `table` for i + 1 live requests, why, and the predicted tokens per second
    (0 where there is no prediction)."""

    table: tuple[Thresholds, ...]
    cause: Cause
    throughput: float


@dataclass(frozen=True, slots=True)
class _Solution:
    at: float
    routing: Routing
    """What it was computed for."""
    plan: Plan


class Adaptation:
    """See the module. One thread owns it."""

    def __init__(
        self,
        batch_max: tuple[int, ...],
        latencies: tuple[StepLatency, ...] | None,
        now: float,
        settings: AdaptationSettings | None = None,
    ) -> None:
        """`latencies` are those of a measured profile, or None to learn them."""
        self.settings = settings or AdaptationSettings()
        unknown = System(mixture((1.0 / len(batch_max),) * len(batch_max)), (constant(1.0),) * len(batch_max))
        self._view = LongView(batch_max, latencies, now)
        self._estimate = SystemEstimate(unknown, now, self.settings.fading)
        first = ThresholdTable((plan(unknown, 1),))
        self._controller = Controller(first, now, self.settings.controller)
        self._ones: Thresholds = (1,) * len(batch_max)
        self._heard_at = [float("-inf")] * len(batch_max)
        self._lives: deque[tuple[float, int]] = deque()
        self._solutions: dict[int, _Solution] = {}
        self._prior: System | None = None
        self._is_near_next = True
        self._near_solved = 0
        """Solutions since the present count had none that fits."""

    @property
    def live(self) -> int:
        """Live requests as last reported."""
        return self._lives[-1][1] if self._lives else 0

    def observe(self, seen: Seen, now: float) -> None:
        """A model's report; ConfigError for one that cannot be."""
        if len(seen.destinations) != len(self._ones) or not 0 <= seen.source < len(self._ones):
            raise ConfigError(f"report of model {seen.source} for {len(seen.destinations)} models")
        self._estimate.observe_steps(seen.source, seen.destinations, seen.steps, now)
        self._view.observe(seen, now)
        self._prior = self._average()
        self._lives.append((now, seen.live))
        while self._lives[0][0] < now - self.settings.drain_s:
            self._lives.popleft()
        if seen.steps:
            self._heard_at[seen.source] = now
        self._controller.record(seen.committed, self._situation(now), now)

    def due(self, now: float) -> int | None:
        """The live count that is best solved next, if any: mostly the present one, in between the others."""
        if self._situation(now).observed_steps < self.settings.controller.warm_steps:
            return None
        near, others = self._near(now), self._stale(now)
        is_near_next = self._near_solved < AGREEING or self._is_near_next or not others
        self._is_near_next = near is None or not is_near_next
        return near if near is not None and is_near_next else next(iter(others), None)

    def solve(self, count: int, now: float) -> None:
        """Solve `count` and take the answer in: milliseconds to half a second."""
        assert self._prior is not None, "nothing is due before every model has run"
        self._estimate.rebase(self._prior)
        system = self._estimate.system(now)
        solve = plan if count <= EXACT_MAX else sparse_plan
        found = solve(system, count, self.settings.search)
        self._near_solved += 1
        self._solutions[count] = _Solution(now, system.routing, found)
        self._controller.accept(ThresholdTable((found,)), now)

    def standing(self, now: float) -> Standing:
        """What holds at `now`."""
        situation = self._situation(now)
        decision = self._controller.decide(situation, now)
        usable = self._usable(now)
        # With one live request the table says 1 as well, and a burst finds its row at once.
        is_alone = decision.cause is Cause.ALONE and situation.observed_steps > 0.0
        is_planned = decision.cause is Cause.PLAN or is_alone
        lives = range(1, self.settings.counts[-1] + 1) if is_planned else ()
        table = tuple(self._row(live, usable) for live in lives) or (self._ones,)
        chosen = table[min(max(self.live, 1), len(table)) - 1]
        return Standing(table, decision.cause, self._predicted(chosen, usable))

    def _average(self) -> System | None:
        """What the traffic looks like; None also when it is of two kinds that no common plan fits."""
        try:
            return self._view.system()
        except ConfigError:
            return None

    def _situation(self, now: float) -> Situation:
        recent = [live for at, live in self._lives if at >= now - self.settings.drain_s]
        is_draining = 2 * self.live < max(recent, default=0)
        is_silent = now - min(self._heard_at) > self.settings.silent_s
        observed = 0.0 if is_silent or self._prior is None else self._estimate.observed_steps(now)
        return Situation(self.live, is_draining, observed)

    def _near(self, now: float) -> int | None:
        """The present count, if it is time; also notes when its solution has lost its ground."""
        place = bisect_right(self.settings.counts, self.live)
        if not place:
            return None
        count = self.settings.counts[place - 1]
        moved = self._moved(now).get(count, 1.0)
        if moved > self.settings.moved_p:
            self._near_solved = 0
        is_calm = self._near_solved >= AGREEING and moved < self.settings.moved_p / 2
        wait_s = self.settings.calm_s if is_calm else self.settings.controller.solve_near_s
        return count if self._age_s(count, now) >= wait_s else None

    def _stale(self, now: float) -> list[int]:
        """Counts from half of what is live to half more, oldest solution first."""
        worth = [count for count in self.settings.counts if 0.5 * self.live <= count <= 1.5 * self.live]
        old = [count for count in worth if self._age_s(count, now) >= self.settings.fresh_s / 2]
        return sorted(old, key=lambda count: -self._age_s(count, now))

    def _age_s(self, count: int, now: float) -> float:
        found = self._solutions.get(count)
        return now - found.at if found else float("inf")

    def _usable(self, now: float) -> list[int]:
        """Counts whose solution still fits the traffic, in rising order."""
        return sorted(count for count, moved in self._moved(now).items() if moved <= self.settings.moved_p)

    def _moved(self, now: float) -> dict[int, float]:
        """By how much a probability differs from what a solution was computed for; those too old left out."""
        routing = self._estimate.system(now).routing
        fresh = [count for count in self._solutions if self._age_s(count, now) <= self.settings.fresh_s]
        return {count: _distance(routing, self._solutions[count].routing) for count in fresh}

    def _row(self, live: int, usable: list[int]) -> Thresholds:
        place = bisect_right(usable, live)
        return self._controller.planned(usable[place - 1]) if place else self._ones

    def _predicted(self, thresholds: Thresholds, usable: list[int]) -> float:
        found = self._solutions[self.live].plan.prediction(thresholds) if self.live in usable else None
        return found.throughput if found else 0.0


def _distance(left: Routing, right: Routing) -> float:
    rows = zip(left.probabilities, right.probabilities, strict=True)
    return max(abs(p - q) for pair in rows for p, q in zip(*pair, strict=True))


def unhurried(settings: AdaptationSettings, controller: ControllerSettings) -> AdaptationSettings:
    """The same for a solver that takes seconds: solutions are used as long as they take to come again."""
    calm_s = 5.0 * controller.solve_near_s
    return replace(settings, controller=controller, calm_s=calm_s, fresh_s=4.0 * calm_s)
