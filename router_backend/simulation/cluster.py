"""A whole deployment in one thread: real schedulers, a home, a network and a clock that jumps.

Owns the loop of discrete events and nothing that decides. Every message goes through the real codec.
Invariant: all that happens at an instant (completions, arrivals) happens before any launch decision
of that instant, so a trace depends on the seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from collections.abc import Sequence as Sequences
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from router_backend.core.effects import Effect, Send
from router_backend.core.replicas import Replicas, least_loaded
from router_backend.core.request import ModelIndex, Request, RequestKey
from router_backend.handoff.codec import Message, pack, unpack
from router_backend.handoff.message import Abort, Admit
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import BatchPlan
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.checkers import Checkers
from router_backend.simulation.clock import ManualClock
from router_backend.simulation.commits import CommitLog
from router_backend.simulation.engine import Engine, EngineSettings
from router_backend.simulation.home import Home
from router_backend.simulation.launches import LaunchRecord
from router_backend.simulation.network import PERFECT, Conditions, Network
from router_backend.simulation.script import SCRIPT, Script
from router_backend.simulation.trace import Trace

HOME = -1
"""The home's address; subservers have their number."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is simulated: by the number of every subserver, its scheduler and its step times.

    Times in seconds; `latencies_s` as in `EngineSettings`.

    After `request_s_max` the home aborts a request everywhere, and after `grace_s` more it ends it by
    itself. Its own words are never lost, other messages are if the network's conditions say so.
    """

    schedulers: tuple[SchedulerSettings, ...]
    latencies_s: tuple[tuple[float, ...], ...]
    script: Script = SCRIPT
    conditions: Conditions = PERFECT
    seed: int = 0
    request_s_max: float = math.inf
    grace_s: float = 64.0

    @property
    def replicas(self) -> Replicas:
        return self.schedulers[0].replicas

    def book(self, model: int) -> PolicyBook:
        """The real policies of one model."""
        names = tuple(f"model{index}" for index in range(len(self.replicas.counts)))
        return PolicyBook(Place(ModelIndex(model), names, ModelIndex(0), self.script.vocab_size))


class _Arrive(NamedTuple):
    request: Request


class Abandon(NamedTuple):
    key: RequestKey
    is_last: bool


class _GiveUp(NamedTuple):
    key: RequestKey


class Delivery(NamedTuple):
    target: int
    frames: tuple[bytes, bytes]


class StepDone(NamedTuple):
    model: int
    plan: BatchPlan


class _Timer(NamedTuple):
    model: int


@dataclass(slots=True)
class Node:
    """One subserver: `running` is the plan of the step in flight."""

    scheduler: Scheduler
    engine: Engine
    running: BatchPlan | None = None
    timer_at: float = -math.inf
    is_down: bool = False


class Cluster:
    """See the module. `submit` and `cancel`, then `run`; afterwards read home, launches and trace."""

    def __init__(self, deployment: Deployment, books: Sequences[PolicyBook] | None = None) -> None:
        self.deployment = deployment
        self.clock: ManualClock[object] = ManualClock()
        self.network = Network(deployment.conditions, np.random.default_rng(deployment.seed))
        self.commits = CommitLog()
        self.home = Home()
        self.trace = Trace()
        self.launches: list[LaunchRecord] = []
        self.replicas = deployment.replicas
        self._books = books or [deployment.book(model) for model in self.replicas.models]
        self.nodes = [self._node(number) for number in range(len(self.replicas))]
        self.checkers = Checkers(self.commits, self.replicas, deployment.conditions.drop_p > 0)
        self._touched: set[int] = set()

    @property
    def schedulers(self) -> list[Scheduler]:
        return [node.scheduler for node in self.nodes]

    @property
    def now(self) -> float:
        return self.clock.now

    def submit(self, request: Request, at: float) -> None:
        """A client's request reaches the home at `at`."""
        self.clock.schedule(at, _Arrive(request))

    def cancel(self, key: RequestKey, at: float) -> None:
        """The client goes away at `at`; the request has been submitted for an earlier time."""
        self.clock.schedule(at, Abandon(key, is_last=False))

    def run(self, turns_max: int = 50_000) -> int:
        """Turns until nothing is left to happen, or `turns_max`; returns how many."""
        turns = 0
        while len(self.clock) and turns < turns_max:
            self.turn()
            turns += 1
        return turns

    def turn(self) -> None:
        """One instant: everything that happens at it, then the launches, then the checks."""
        now = self.clock.next_at
        while self.clock.next_at == now:
            self._handle(self.clock.pop())
        self._launch()
        self.checkers.after_turn(self.schedulers, sorted(self._touched))
        self._touched.clear()

    def check_end(self) -> None:
        """Violation unless everything has ended and nothing is left."""
        self.checkers.at_end(self.schedulers, self.home)

    def _node(self, number: int) -> Node:
        deployment = self.deployment
        settings = deployment.schedulers[number]
        assert settings.subserver == number, (settings, number)
        engine_settings = EngineSettings(
            settings.model, settings.num_blocks, settings.block_size, deployment.latencies_s[number]
        )
        engine = Engine(engine_settings, deployment.script, self.commits)
        return Node(Scheduler(settings, self._books[number]), engine)

    def _handle(self, event: object) -> None:
        match event:
            case _Arrive():
                self._arrive(event.request)
            case Abandon():
                self._abort(event)
            case _GiveUp():
                self.home.give_up(event.key, self.now)
            case Delivery():
                self._deliver(event)
            case StepDone():
                self._complete(event)
            case _Timer():
                self.trace.add(self.now, "timer", event.model, "")

    def _arrive(self, request: Request) -> None:
        self.trace.add(self.now, "arrive", HOME, _named(request.key))
        entry = self._books[0].router(request.policy).entry(request)
        self.home.open(request, self.now)
        self.commits.open(request)
        self._admit(request, entry)
        if self.deployment.request_s_max < math.inf:
            at = self.now + self.deployment.request_s_max
            self.clock.schedule(at, Abandon(request.key, is_last=True))

    def _admit(self, request: Request, entry: ModelIndex, answer: tuple[int, ...] = ()) -> None:
        """Give a life to the replica of its entry model that has the fewest, as far as the home knows."""
        living = [replica for replica in self.replicas.of(entry) if replica not in self._lost()]
        chosen = least_loaded(living or self.replicas.of(entry), self._home_load(), request.request_id)
        assert chosen is not None, entry
        self.home.answers[self.home.client_of[request.key]].replica = chosen
        self.checkers.admitted(request, chosen, len(answer))
        self._post(HOME, chosen, Admit(request, answer))

    def _lost(self) -> Container[int]:
        """Subservers that the home knows to be away."""
        return ()

    def _home_load(self) -> list[int]:
        """By subserver: the open answers that begin there."""
        load = [0] * len(self.nodes)
        for answer in self.home.answers.values():
            if answer.replica is not None and answer.ended_at is None:
                load[answer.replica] += 1
        return load

    def _abort(self, event: Abandon) -> None:
        """Told to every subserver; the deadline's also ends what nobody closes any more."""
        self.trace.add(self.now, "abort", HOME, _named(event.key))
        self._abort_everywhere(self.home.answers[event.key].request)
        if event.is_last:
            self.clock.schedule(self.now + self.deployment.grace_s, _GiveUp(event.key))

    def _abort_everywhere(self, request: Request) -> None:
        for model in range(len(self.nodes)):
            self._post(HOME, model, Abort(request.request_id, request.epoch))

    def _deliver(self, event: Delivery) -> None:
        message = unpack(event.frames)
        self.trace.add(self.now, type(message).__name__, event.target, event.frames[1].hex())
        if event.target == HOME:
            self.home.hear(message, self.now)
        else:
            self._perform(event.target, self.nodes[event.target].scheduler.on(message, self.now))

    def _complete(self, event: StepDone) -> None:
        """The engine reads the plan only now: blocks must stay reserved while a step is in flight."""
        model, plan = event
        node = self.nodes[model]
        assert node.running is plan, f"model {model} completes a step that it did not start"
        node.running = None
        self.trace.add(self.now, "done", model, str(plan.step))
        self._perform(model, node.scheduler.apply(plan, node.engine.execute(plan), self.now))

    def _perform(self, model: int, effects: Iterable[Effect]) -> None:
        self._touched.add(model)
        for effect in effects:
            self.checkers.see(model, effect)
            if isinstance(effect, Send):
                self._post(model, effect.target, cast(Message, effect.message))
            else:
                self._post(model, HOME, effect)

    def _post(self, source: int, target: int, message: Message) -> None:
        frames = pack(message)
        for at in self.network.arrivals((source, target), self.now, source != HOME):
            self.clock.schedule(at, Delivery(target, frames))

    def _launch(self) -> None:
        for model, node in enumerate(self.nodes):
            if node.running is not None or node.is_down:
                continue
            decision = node.scheduler.plan(self.now)
            if isinstance(decision, BatchPlan):
                self._start(model, decision)
            else:
                self.checkers.idle(node.scheduler, self.now)
                self._set_timer(model, decision.until)

    def _start(self, model: int, plan: BatchPlan) -> None:
        node = self.nodes[model]
        node.running = plan
        self._touched.add(model)
        step_s = node.engine.step_s(plan)
        request_ids = tuple(row.request_id for row in plan.rows)
        self.launches.append(LaunchRecord(self.now, model, plan.reason, step_s, request_ids))
        rows = " ".join(f"{_named(row.key)}:{row.start}-{row.end}" for row in plan.rows)
        self.trace.add(self.now, "launch", model, f"{plan.reason.value} {rows}")
        self.clock.schedule(self.now + step_s, StepDone(model, plan))

    def _set_timer(self, model: int, until: float | None) -> None:
        node = self.nodes[model]
        if until is not None and until < math.inf and until != node.timer_at:
            node.timer_at = until
            self.clock.schedule(until, _Timer(model))


def _named(key: RequestKey) -> str:
    """For the trace: the id, and the epoch where an id has several."""
    return f"{key.request_id}/{key.epoch}" if key.epoch else key.request_id
