"""Which thresholds are in force now. Decides on plans that others compute; computes none itself.

A threshold is lowered at once and raised late: overshoot costs far more than undershoot. Raising takes
two solutions in a row that agree, and a predicted gain. Invariant: whatever is in force for a number of
live requests is componentwise at most some solution for that number, hence feasible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from router_backend.core.errors import ConfigError
from router_backend.planner.threshold_table import ThresholdTable
from router_backend.planner.thresholds import Plan, Thresholds
from router_backend.planner.watchdog import Arm, Watchdog, WatchdogSettings


class Cause(Enum):
    """Why these thresholds are in force."""

    PLAN = "plan"
    ALONE = "alone"
    DRAINING = "draining"
    COLD = "cold"
    WATCHDOG = "watchdog"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """When to solve, when to believe.

    gain_min      predicted relative gain that a raise needs
    solve_near_s  time between solutions for the present number of live requests (some milliseconds)
    solve_all_s   time between solutions of the whole table (most of a second)
    warm_steps    steps of every model (`SystemEstimate.observed_steps`) below which it is cold
    """

    gain_min: float = 0.02
    solve_near_s: float = 0.25
    solve_all_s: float = 5.0
    warm_steps: float = 10.0
    watchdog: WatchdogSettings = field(default_factory=WatchdogSettings)

    def __post_init__(self) -> None:
        if self.gain_min < 0.0 or not 0.0 < self.solve_near_s <= self.solve_all_s:
            raise ConfigError("controller: gain_min >= 0 and 0 < solve_near_s <= solve_all_s are needed")


# For a server whose chain solver is not compiled (`native.is_compiled`): a solution then takes seconds,
# and holds the interpreter lock that the decode loop needs.
UNHURRIED = ControllerSettings(solve_near_s=60.0, solve_all_s=600.0)


@dataclass(frozen=True, slots=True)
class Situation:
    """The moment a decision is for: live requests, whether admission has ended, observed steps."""

    live: int
    is_draining: bool
    observed_steps: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Thresholds, one per model, and their cause."""

    thresholds: Thresholds
    cause: Cause


class Controller:
    """The state machine; every method is cheap enough for the decode loop."""

    def __init__(self, prior: ThresholdTable, now: float, settings: ControllerSettings | None = None) -> None:
        self.settings = settings or ControllerSettings()
        self.watchdog = Watchdog(now, self.settings.watchdog)
        self._ones: Thresholds = (1,) * prior.model_count
        self._in_force = {plan.concurrency: plan.chosen.thresholds for plan in prior.plans}
        self._counts = sorted(self._in_force)
        self._wanted: dict[int, Thresholds] = {}
        self._near_at = now
        self._all_at = now

    def decide(self, situation: Situation, now: float) -> Decision:
        """The thresholds for this moment."""
        cause = self._exception(situation)
        if cause is Cause.PLAN and self.watchdog.arm(now) is Arm.ONES:
            cause = Cause.WATCHDOG
        if cause is not Cause.PLAN:
            return Decision(self._ones, cause)
        return Decision(self.planned(situation.live), cause)

    def planned(self, live: int) -> Thresholds:
        """What is in force for `live` requests when nothing speaks against it."""
        place = bisect_right(self._counts, live)
        return self._in_force[self._counts[place - 1]] if place else self._ones

    def record(self, tokens: int, situation: Situation, now: float) -> None:
        """`tokens` were committed since the last record: evidence for the watchdog."""
        if self._exception(situation) is Cause.PLAN and self.planned(situation.live) != self._ones:
            self.watchdog.record(tokens, situation.live, now)

    def counts_due(self, live: int, now: float) -> tuple[int, ...]:
        """Live counts that an idle worker should solve again from the latest estimate; mostly none.

        The present count comes often, because traffic changes within seconds, all of them seldom.
        """
        if now - self._near_at < self.settings.solve_near_s:
            return ()
        if now - self._all_at >= self.settings.solve_all_s:
            return tuple(self._counts)
        place = bisect_right(self._counts, live)
        return (self._counts[place - 1],) if place and live > 1 else ()

    def accept(self, table: ThresholdTable, now: float) -> tuple[int, ...]:
        """Take in a new solution; the live counts whose thresholds have changed."""
        if table.model_count != len(self._ones):
            raise ConfigError(f"table: {len(self._ones)} models expected, got {table.model_count}")
        self._near_at = now
        if len(table.plans) >= len(self._counts):
            self._all_at = now
        return tuple(plan.concurrency for plan in table.plans if self._apply(plan))

    def _exception(self, situation: Situation) -> Cause:
        if situation.is_draining:
            return Cause.DRAINING
        if situation.live <= 1:
            return Cause.ALONE
        return Cause.COLD if situation.observed_steps < self.settings.warm_steps else Cause.PLAN

    def _apply(self, plan: Plan) -> bool:
        """Lower at once; raise to what this solution and the one before both allow."""
        live, proposed = plan.concurrency, plan.chosen.thresholds
        before = self._in_force.get(live, self._ones)
        lowered = _lower(before, proposed)
        agreed = _lower(self._wanted.get(live, lowered), proposed)
        raised = tuple(max(pair) for pair in zip(lowered, agreed, strict=True))
        self._wanted[live] = proposed
        after = raised if _gain(plan, lowered, raised) > self.settings.gain_min else lowered
        if live not in self._in_force:
            self._counts = sorted([*self._counts, live])
        self._in_force[live] = after
        return after != before


def _lower(left: Iterable[int], right: Iterable[int]) -> Thresholds:
    return tuple(min(pair) for pair in zip(left, right, strict=True))


def _gain(plan: Plan, old: Thresholds, new: Thresholds) -> float:
    """Predicted relative gain of `new` over `old`; 0 where the plan has not looked at one of them."""
    before, after = plan.prediction(old), plan.prediction(new)
    if before is None or after is None:
        return 0.0
    return after.throughput / before.throughput - 1.0
