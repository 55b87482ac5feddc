"""The closed loop under adaptive thresholds, with traffic that changes: everything but a server's threads.

Schedulers, reports, adaptation and announcements are the real ones, and come as often as in a server. A
solution takes the time that it is said to take, in which nothing else is planned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from python_backend.loops.decode_loop import SNAPSHOT_S
from python_backend.loops.event_log import Step
from python_backend.loops.planning_loop import LASTS_S, RENEW_S, TURN_S, SolvingBudget
from python_backend.loops.step_tally import StepTally
from router_backend.core.effects import Effect
from router_backend.core.request import ModelIndex, Request, RequestId
from router_backend.handoff.message import Admit, Observation, Thresholds
from router_backend.planner.adaptation import EXACT_MAX, Adaptation, AdaptationSettings
from router_backend.planner.controller import Cause
from router_backend.scheduler.batch import StepOutput
from router_backend.scheduler.rounds import LEADER
from router_backend.simulation.closed_loop import (
    CERTAIN,
    DIGITS,
    POLICY,
    TOKEN,
    UNCERTAIN,
    ClosedLoop,
    Load,
    Pair,
    Scheduling,
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """How traffic changes with time: probability to leave the small model, requests at a time."""

    route_p: Callable[[float], float]
    clients: Callable[[float], int]
    seconds: float


@dataclass(slots=True)
class Planner:
    """The leader's worker, with the times of `PlanningLoop`; `solve_s` says how long a solution takes."""

    adaptation: Adaptation
    solve_s: Callable[[int], float]
    busy_until: float = 0.0
    budget: SolvingBudget = field(default_factory=lambda: SolvingBudget(0.0))
    announced: tuple[tuple[int, ...], ...] = ()
    announced_at: float = float("-inf")
    waiting: list[Observation] = field(default_factory=list)
    causes: dict[Cause, int] = field(default_factory=dict)

    def turn(self, now: float) -> Thresholds | None:
        if now < self.busy_until:
            return None
        for seen in self.waiting:
            self.adaptation.observe(seen, now)
        self.waiting.clear()
        if self.budget.has_some(now) and (count := self.adaptation.due(now)) is not None:
            self.adaptation.solve(count, now)
            self.busy_until = now + self.solve_s(count)
            self.budget.spend(self.solve_s(count))
        standing = self.adaptation.standing(now)
        self.causes[standing.cause] = self.causes.get(standing.cause, 0) + 1
        if standing.table == self.announced and now < self.announced_at + RENEW_S:
            return None
        self.announced, self.announced_at = standing.table, now
        return Thresholds(LEADER, standing.table, LASTS_S)


class AdaptiveLoop(ClosedLoop):
    """`serve` once; `planner` is None for fixed thresholds."""

    def __init__(
        self, pair: Pair, traffic: Traffic, scheduling: Scheduling, planner: Planner | None, seed: int = 0
    ) -> None:
        most = max(traffic.clients(float(second)) for second in range(int(traffic.seconds)))
        super().__init__(pair, Load(most, answer_tokens=160, seed=seed), scheduling)
        self.planner = planner
        self.by_second: list[int] = []
        self._traffic = traffic
        self._tallies = [StepTally(ModelIndex(model), ModelIndex(0), 2) for model in range(2)]
        self._report_at = 0.0
        self._turn_at = 0.0

    def serve(self) -> float:
        """Committed tokens per second over the whole time."""
        while self._clock.now < self._traffic.seconds:
            self._admit()
            self._plan()
            now = self._clock.next_at if len(self._clock) else self._clock.now
            while len(self._clock) and self._clock.next_at == now:
                self._handle(self._clock.pop())
            self._admit()
            self._launch()
            self.by_second += [0] * (int(now) + 1 - len(self.by_second))
            self.by_second[int(now)] = self.tally.tokens
        return self.tally.tokens / self._clock.now

    def _admit(self) -> None:
        wanted = self._traffic.clients(self._clock.now)
        while len(self._told_at) < wanted:
            self._asked += 1
            # Answers of different lengths, or all requests of a burst would end and begin together.
            length = 50 + 37 * self._asked % 101
            request = Request(RequestId(f"r{self._asked}"), (TOKEN,), length, policy=POLICY)
            self._told_at[request.request_id] = None
            self._perform(self._nodes[0].scheduler.on(Admit(request), self._clock.now))

    def _ask(self) -> None:
        """A client that has its answer asks again only if it is still wanted: `_admit` looks."""

    def _plan(self) -> None:
        now = self._clock.now
        if self.planner is None:
            return
        if now >= self._report_at:
            self._report_at = now + SNAPSHOT_S
            for node, tally in zip(self._nodes, self._tallies, strict=True):
                seen = tally.report(len(node.scheduler.roster.live))
                if seen is not None:
                    self.planner.waiting.append(seen)
        if now >= self._turn_at:
            self._turn_at = now + TURN_S / 2
            thresholds = self.planner.turn(now)
            for node in self._nodes if thresholds else ():
                node.scheduler.on(thresholds, now)

    def _complete(self, model: int) -> None:
        node, now = self._nodes[model], self._clock.now
        plan, node.running = node.running, None
        assert plan is not None, f"model {model} completes a step that it did not start"
        uncertain_p = self._traffic.route_p(now) if model == 0 else node.uncertain_p
        entropy = [UNCERTAIN if next(node.draws) < uncertain_p else CERTAIN for _ in plan.rows]
        output = StepOutput(np.full(len(plan.rows), TOKEN), entropy=np.array(entropy, dtype=np.float32))
        effects: list[Effect] = node.scheduler.apply(plan, output, now)
        step_s = node.step_s[min(len(plan.rows), len(node.step_s)) - 1]
        self._tallies[model].note(Step(round(now - step_s, DIGITS), now, plan, effects))
        self._perform(effects)


def adaptive(
    pair: Pair, traffic: Traffic, settings: AdaptationSettings | None = None, seed: int = 0
) -> AdaptiveLoop:
    adaptation = Adaptation((64, 64), None, 0.0, settings)
    planner = Planner(adaptation, lambda count: 0.13 if count > EXACT_MAX else 0.0006 * count**2)
    return AdaptiveLoop(pair, traffic, Scheduling((1, 1), deadline_s=0.05), planner, seed)


def fixed(pair: Pair, traffic: Traffic, large: int = 1, seed: int = 0) -> AdaptiveLoop:
    return AdaptiveLoop(pair, traffic, Scheduling((1, large), deadline_s=0.05), None, seed)
