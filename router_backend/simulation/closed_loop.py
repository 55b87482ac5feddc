"""What-if: a pair of models under a constant load, on the real schedulers and a clock that jumps.

Owns the clients and the loop of events, and nothing that decides. Schedulers, policy, gate and messages
are those of a server; the engine only lets time pass and draws how certain it was. Unlike `cluster` it
checks nothing and writes no trace, so that long runs are quick. Same settings, same figures.

Each client starts its next request when its last one has ended. Every message between the two models
takes `handoff_s`; clients are told at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np

from router_backend.core.effects import Close, Effect, Emit, Send
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId
from router_backend.handoff.codec import Message
from router_backend.handoff.message import Admit
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import BatchPlan, LaunchReason, StepOutput
from router_backend.scheduler.rounds import Mode
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.clock import ManualClock
from router_backend.simulation.launches import LaunchRecord

NAMES = ("small", "large")
VOCAB = 97
TOKEN = 1
CUTOFF = 0.5
CERTAIN, UNCERTAIN = 0.0, math.log(VOCAB)
POLICY = PolicySpec("r_stitch", (("cutoff", CUTOFF),))
DRAWS = 4096
DIGITS = 9
"""Moments are rounded to nanoseconds: sums of step times that should be equal are then one instant."""
LAUNCHES_KEPT = 128


@dataclass(frozen=True, slots=True)
class Pair:
    """Two models. `step_s[m][rows - 1]` is model m's step time, the last entry also for larger batches.

    A small step hands over with `route_p` and discards its token; a large one hands back with `return_p`.
    """

    step_s: tuple[tuple[float, ...], tuple[float, ...]]
    route_p: float
    return_p: float = 1.0
    handoff_s: float = 0.0

    @property
    def uncertain_p(self) -> tuple[float, float]:
        return self.route_p, 1.0 - self.return_p


@dataclass(frozen=True, slots=True)
class Load:
    """`clients` requests at a time, `answer_tokens` tokens each; run until `tokens` have been committed,
    of which the first `warmup_tokens` do not count."""

    clients: int
    answer_tokens: int = 256
    tokens: int = 100_000
    warmup_tokens: int = 1_000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How the pair is scheduled; `deadline_s` bounds the deliberate wait for a batch to fill."""

    thresholds: tuple[int, int] = (1, 1)
    mode: Mode = Mode.DELAYED
    deadline_s: float = math.inf


@dataclass(slots=True)
class Tally:
    """What happened since the warm-up; lists are by model, gaps between the tokens of one answer in s."""

    began_at: float = 0.0
    ended_at: float = 0.0
    tokens: int = 0
    steps: list[int] = field(default_factory=lambda: [0, 0])
    rows: list[int] = field(default_factory=lambda: [0, 0])
    launches: list[dict[LaunchReason, int]] = field(default_factory=lambda: [{}, {}])
    gaps_s: list[float] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Committed tokens per second of simulated time."""
        return self.tokens / (self.ended_at - self.began_at)

    @property
    def mean_batch(self) -> tuple[float, ...]:
        pairs = zip(self.rows, self.steps, strict=True)
        return tuple(rows / steps if steps else 0.0 for rows, steps in pairs)


class _StepDone(NamedTuple):
    model: int


class _Deliver(NamedTuple):
    target: int
    message: Message


@dataclass(slots=True)
class _Node:
    scheduler: Scheduler
    step_s: tuple[float, ...]
    uncertain_p: float
    draws: Iterator[float]
    running: BatchPlan | None = None
    timer_at: float = -math.inf


class ClosedLoop:
    """`run` once; `launches` then holds the last batches."""

    def __init__(self, pair: Pair, load: Load, scheduling: Scheduling) -> None:
        self.launches: deque[LaunchRecord] = deque(maxlen=LAUNCHES_KEPT)
        self.tally = Tally()
        self._pair = pair
        self._load = load
        self._clock: ManualClock[_StepDone | _Deliver | None] = ManualClock()
        self._nodes = [_node(model, pair, load, scheduling) for model in range(2)]
        self._told_at: dict[RequestId, float | None] = {}
        self._asked = 0

    def run(self) -> Tally:
        """Until enough tokens have been committed; `AssertionError` if the system comes to rest first."""
        for _ in range(self._load.clients):
            self._ask()
        self._launch()
        self._run_until(self._load.warmup_tokens)
        self.tally = Tally(began_at=self._clock.now)
        self._run_until(self._load.tokens)
        self.tally.ended_at = self._clock.now
        return self.tally

    def _run_until(self, tokens: int) -> None:
        clock = self._clock
        while self.tally.tokens < tokens:
            assert len(clock), f"at rest at {clock.now} s with {len(self._told_at)} unended"
            now = clock.next_at
            while clock.next_at == now:
                self._handle(clock.pop())
            self._launch()

    def _ask(self) -> None:
        """A client's next request, at the small model at once."""
        self._asked += 1
        request_id = RequestId(f"r{self._asked}")
        request = Request(request_id, (TOKEN,), self._load.answer_tokens, policy=POLICY)
        self._told_at[request_id] = None
        self._perform(self._nodes[0].scheduler.on(Admit(request), self._clock.now))

    def _handle(self, event: _StepDone | _Deliver | None) -> None:
        match event:
            case _StepDone():
                self._complete(event.model)
            case _Deliver():
                node = self._nodes[event.target]
                self._perform(node.scheduler.on(event.message, self._clock.now))

    def _complete(self, model: int) -> None:
        node = self._nodes[model]
        plan, node.running = node.running, None
        assert plan is not None, f"model {model} completes a step that it did not start"
        entropy = [UNCERTAIN if next(node.draws) < node.uncertain_p else CERTAIN for _ in plan.rows]
        tokens = np.full(len(plan.rows), TOKEN)
        output = StepOutput(tokens, entropy=np.array(entropy, dtype=np.float32))
        self._perform(node.scheduler.apply(plan, output, self._clock.now))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Emit):
                self._hear(effect)
            elif isinstance(effect, Close):
                del self._told_at[effect.request_id]
                self._ask()
            else:
                self._post(effect)

    def _hear(self, emit: Emit) -> None:
        now, before = self._clock.now, self._told_at[emit.request_id]
        self.tally.tokens += 1
        if before is not None:
            self.tally.gaps_s.append(now - before)
        self._told_at[emit.request_id] = now

    def _post(self, send: Send) -> None:
        delivery = _Deliver(send.target, cast(Message, send.message))
        if self._pair.handoff_s:
            self._clock.schedule(round(self._clock.now + self._pair.handoff_s, DIGITS), delivery)
        else:
            self._handle(delivery)

    def _launch(self) -> None:
        now = self._clock.now
        for model, node in enumerate(self._nodes):
            if node.running is not None:
                continue
            decision = node.scheduler.plan(now)
            if isinstance(decision, BatchPlan):
                self._start(model, decision)
            elif decision.until is not None and node.timer_at < decision.until < math.inf:
                node.timer_at = decision.until
                self._clock.schedule(decision.until, None)

    def _start(self, model: int, plan: BatchPlan) -> None:
        node, tally, rows = self._nodes[model], self.tally, len(plan.rows)
        node.running = plan
        step_s = node.step_s[min(rows, len(node.step_s)) - 1]
        tally.steps[model] += 1
        tally.rows[model] += rows
        reasons = tally.launches[model]
        reasons[plan.reason] = reasons.get(plan.reason, 0) + 1
        request_ids = tuple(row.request_id for row in plan.rows)
        self.launches.append(LaunchRecord(self._clock.now, model, plan.reason, step_s, request_ids))
        self._clock.schedule(round(self._clock.now + step_s, DIGITS), _StepDone(model))


def _node(model: int, pair: Pair, load: Load, scheduling: Scheduling) -> _Node:
    """A model whose KV pool holds every request that can be live."""
    length = 1 + load.answer_tokens
    settings = SchedulerSettings(
        model=ModelIndex(model),
        thresholds=scheduling.thresholds,
        num_blocks=2 * load.clients,
        block_size=length,
        length_max=length,
        batch_max=max(load.clients, scheduling.thresholds[model]),
        batch_tokens_max=load.clients * length,
        deadline_s=scheduling.deadline_s,
        mode=scheduling.mode,
    )
    book = PolicyBook(Place(ModelIndex(model), NAMES, ModelIndex(0), VOCAB))
    draws = _uniforms(np.random.default_rng((load.seed, model)))
    return _Node(Scheduler(settings, book), pair.step_s[model], pair.uncertain_p[model], draws)


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Stratified: of `DRAWS` in a row each share of [0, 1) has its own, so that luck averages out sooner."""
    while True:
        yield from ((rng.permutation(DRAWS) + rng.random(DRAWS)) / DRAWS).tolist()
