"""The planning loop: the worker of the subserver that leads adaptive thresholds.

Hears what all models report, lets solutions be computed and announces the table that follows. Owns the
adaptation; never touches a scheduler, and takes a bounded share of one core. The invariant: a table is
announced again long before its term is over, and once this loop is silent, it holds nowhere for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from python_backend.loops.inbox import Inbox
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Observation, Thresholds
from router_backend.planner.adaptation import Adaptation, Standing
from router_backend.planner.controller import Cause

_log = logging.getLogger(__name__)

TURN_S = 0.1
"""Longest time between two looks at what holds."""
RENEW_S = 1.0
LASTS_S = 4.0
"""The term of a table: longer than a renewal and the longest solution together."""
SOLVING_SHARE = 0.05
"""Of one core, on average."""
SOLVING_BURST_S = 1.0
"""What may be spent at once after a while without need: traffic has changed and calls for answers now."""


class SolvingBudget:
    """Seconds that may be spent on solutions: a share of the time, saved up to a limit."""

    def __init__(self, now: float) -> None:
        self._left_s = SOLVING_BURST_S
        self._at = now

    def has_some(self, now: float) -> bool:
        self._left_s = min(SOLVING_BURST_S, self._left_s + SOLVING_SHARE * max(0.0, now - self._at))
        self._at = now
        return self._left_s > 0.0

    def spend(self, seconds: float) -> None:
        self._left_s -= seconds


@dataclass(frozen=True, slots=True)
class PlanningFigures:
    """What holds, for the metrics page; `solutions` and `solving_s` only grow."""

    cause: Cause = Cause.COLD
    throughput: float = 0.0
    solutions: int = 0
    solving_s: float = 0.0
    refused: int = 0
    """Reports that could not be."""


class PlanningLoop:
    """`hear` and `stop` from any thread, everything else in `run`'s thread."""

    def __init__(
        self,
        leader: ModelIndex,
        adaptation: Adaptation,
        announce: Callable[[Thresholds], None],
        clock: Callable[[], float],
    ) -> None:
        self.figures = PlanningFigures()
        self._leader = leader
        self._adaptation = adaptation
        self._announce = announce
        self._clock = clock
        self._inbox: Inbox[Observation] = Inbox(clock=clock)
        self._announced: tuple[tuple[int, ...], ...] = ()
        self._announced_at = float("-inf")
        self._budget = SolvingBudget(clock())
        self._is_stopping = False

    def hear(self, observation: Observation) -> None:
        self._inbox.put(observation)

    def run(self) -> None:
        while not self._is_stopping:
            self._inbox.wait(self._clock() + TURN_S)
            self.turn()

    def stop(self) -> None:
        """End `run` after its current turn."""
        self._is_stopping = True
        self._inbox.wake()

    def turn(self) -> None:
        """Take in what was reported, solve at most one live count, announce what follows."""
        refused = self._take_in()
        spent_s = self._solve()
        now = self._clock()
        standing = self._adaptation.standing(now)
        self._tell(standing, now)
        before = self.figures
        self.figures = PlanningFigures(
            standing.cause,
            standing.throughput,
            before.solutions + (spent_s is not None),
            before.solving_s + (spent_s or 0.0),
            before.refused + refused,
        )

    def _take_in(self) -> int:
        refused = 0
        for observation in self._inbox.drain():
            try:
                self._adaptation.observe(observation, self._clock())
            except ConfigError as error:
                refused += 1
                _log.error("dropped what model %d reports: %s", observation.source, error)
        return refused

    def _solve(self) -> float | None:
        """Seconds spent on a solution, if one was due and the time for it is there."""
        began_at = self._clock()
        count = self._adaptation.due(began_at) if self._budget.has_some(began_at) else None
        if count is None:
            return None
        self._adaptation.solve(count, began_at)
        spent_s = self._clock() - began_at
        self._budget.spend(spent_s)
        return spent_s

    def _tell(self, standing: Standing, now: float) -> None:
        is_due = now >= self._announced_at + RENEW_S
        if standing.table != self._announced or is_due:
            self._announced, self._announced_at = standing.table, now
            self._announce(Thresholds(self._leader, standing.table, LASTS_S))
