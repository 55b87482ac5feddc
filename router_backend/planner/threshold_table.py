"""The plan for every number of live requests: a table, because one vector cannot fit them all."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from router_backend.core.errors import ConfigError
from router_backend.planner.system import System
from router_backend.planner.thresholds import Plan, Search, Thresholds, plan

# The table is solved again and again while the server runs: chains of a few milliseconds each.
TABLE_SEARCH = Search(exact_state_limit=2_000, rounded_state_limit=20_000)
LIVE_COUNTS = (*range(1, 17), 24, 32)


@dataclass(frozen=True, slots=True)
class ThresholdTable:
    """Plans in rising order of live requests."""

    plans: tuple[Plan, ...]

    def __post_init__(self) -> None:
        counts = [one.concurrency for one in self.plans]
        if not counts or counts != sorted(set(counts)):
            raise ConfigError(f"live counts: at least one, in rising order, got {counts}")

    @property
    def model_count(self) -> int:
        return len(self.plans[0].chosen.thresholds)

    def plan_at(self, live: int) -> Plan | None:
        """The plan of the largest solved count that is not above `live`; None below the first.

        Thresholds of a smaller count are feasible for every larger one, and err on the safe side.
        """
        place = bisect_right(self.plans, live, key=lambda one: one.concurrency)
        return self.plans[place - 1] if place else None

    def thresholds_at(self, live: int) -> Thresholds:
        """The chosen thresholds for `live` requests; all ones below the first solved count."""
        found = self.plan_at(live)
        return found.chosen.thresholds if found else (1,) * self.model_count


def plan_table(
    system: System, live_counts: Iterable[int] = LIVE_COUNTS, search: Search = TABLE_SEARCH
) -> ThresholdTable:
    """Plan every live count; about 0.3 s for 1..16 and two models with the compiled solver."""
    return ThresholdTable(tuple(plan(system, live, search) for live in live_counts))
