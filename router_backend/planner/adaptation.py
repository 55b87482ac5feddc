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
from router_backend.planner.controller import Cause, Controller, ControllerSettings, Decision, Situation
from router_backend.planner.estimate import Fading, SystemEstimate
from router_backend.planner.latency import StepLatency, constant
from router_backend.planner.long_view import LongView, Seen
from router_backend.planner.routing import mixture
from router_backend.planner.system import System
from router_backend.planner.threshold_table import TABLE_SEARCH, ThresholdTable
from router_backend.planner.thresholds import Plan, Search, Thresholds, plan
from router_backend.planner.watchdog import WatchdogSettings

COUNTS = (*range(2, 13), 14, 16)
"""Live counts that are solved: beyond, a solution takes seconds, and eager batches are full anyway."""

# Reports come five times a second: a window must be long enough to tell them apart.
WATCHDOG = WatchdogSettings(interval_s=40.0, window_s=1.0, settle_share=0.4)


@dataclass(frozen=True, slots=True)
class AdaptationSettings:
    """Times in seconds.

    fresh_s   oldest solution that is used
    drain_s   thresholds are 1 while fewer than half of the requests of this long ago are live
    silent_s  longest silence of a model that still counts as traffic
    """

    controller: ControllerSettings = field(default_factory=lambda: ControllerSettings(watchdog=WATCHDOG))
    fading: Fading = field(default_factory=Fading)
    search: Search = TABLE_SEARCH
    counts: tuple[int, ...] = COUNTS
    fresh_s: float = 5.0
    drain_s: float = 1.0
    silent_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What holds now: row i of `table` for i + 1 live requests, why, and the predicted tokens per second
    (0 where there is no prediction)."""

    table: tuple[Thresholds, ...]
    cause: Cause
    throughput: float


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
        self._solved_at: dict[int, float] = {}
        self._plans: dict[int, Plan] = {}
        self._prior: System | None = None
        self._is_near_next = True

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
        chosen = near if near is not None and (self._is_near_next or not others) else None
        self._is_near_next = chosen is None
        return chosen if chosen is not None else next(iter(others), None)

    def solve(self, count: int, now: float) -> None:
        """Solve `count` and take the answer in: milliseconds to half a second."""
        assert self._prior is not None, "nothing is due before every model has run"
        self._solved_at[count] = now
        self._estimate.rebase(self._prior)
        found = plan(self._estimate.system(now), count, self.settings.search)
        self._plans[count] = found
        self._controller.accept(ThresholdTable((found,)), now)

    def standing(self, now: float) -> Standing:
        """What holds at `now`."""
        decision = self._decision(now)
        if decision.cause not in (Cause.PLAN, Cause.ALONE):
            return Standing((self._ones,), decision.cause, self._predicted(self._ones, now))
        # With one live request the table says 1 as well, and a burst finds its row at once.
        table = tuple(self._row(live, now) for live in range(1, self.settings.counts[-1] + 1))
        return Standing(table, decision.cause, self._predicted(self._row(self.live, now), now))

    def _average(self) -> System | None:
        """What the traffic looks like; None also when it is of two kinds that no common plan fits."""
        try:
            return self._view.system()
        except ConfigError:
            return None

    def _decision(self, now: float) -> Decision:
        return self._controller.decide(self._situation(now), now)

    def _situation(self, now: float) -> Situation:
        is_draining = 2 * self.live < max((live for _, live in self._lives), default=0)
        is_silent = now - min(self._heard_at) > self.settings.silent_s
        observed = 0.0 if is_silent or self._prior is None else self._estimate.observed_steps(now)
        return Situation(self.live, is_draining, observed)

    def _near(self, now: float) -> int | None:
        place = bisect_right(self.settings.counts, self.live)
        if not place:
            return None
        count = self.settings.counts[place - 1]
        return count if self._age_s(count, now) >= self.settings.controller.solve_near_s else None

    def _stale(self, now: float) -> list[int]:
        """Other counts up to half more than are live, oldest solution first."""
        worth = [count for count in self.settings.counts if count <= 1.5 * self.live]
        old = [count for count in worth if self._age_s(count, now) >= self.settings.fresh_s / 2]
        return sorted(old, key=lambda count: -self._age_s(count, now))

    def _age_s(self, count: int, now: float) -> float:
        return now - self._solved_at.get(count, float("-inf"))

    def _row(self, live: int, now: float) -> Thresholds:
        for count in reversed(self.settings.counts):
            if count <= live and self._age_s(count, now) <= self.settings.fresh_s:
                return self._controller.planned(count)
        return self._ones

    def _predicted(self, thresholds: Thresholds, now: float) -> float:
        found = self._plans.get(self.live)
        if found is None or self._age_s(self.live, now) > self.settings.fresh_s:
            return 0.0
        prediction = found.prediction(thresholds)
        return prediction.throughput if prediction else 0.0


def unhurried(settings: AdaptationSettings, controller: ControllerSettings) -> AdaptationSettings:
    """The same for a solver that takes seconds: solutions are used as long as they take to come again."""
    return replace(settings, controller=controller, fresh_s=20.0 * controller.solve_near_s)
