"""Anything in any order happens to one scheduler of three: no block, no request and no ending gets lost.

The machine plays the home, both peers and the engine, and keeps its own record of every request. All
share two ids, so whatever is said of one life, late or twice, meets another that is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from router_backend.core.effects import Close, Effect, Emit, Reason, Send
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, RequestKey
from router_backend.core.state import State
from router_backend.handoff.message import Abort, Admit, Admitted, Finished, Handoff
from router_backend.scheduler.batch import BatchPlan, StepOutput
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import EOS, request, scheduler

MODELS = 3
IDS = 2
POLICIES = [
    PolicySpec("fixed", (("mode", "never"),)),
    PolicySpec("fixed", (("mode", "always"),)),
    PolicySpec("fixed", (("mode", "every"), ("k", 2), ("to", "large"))),
    PolicySpec("fixed", (("mode", "every"), ("k", 2), ("entry", "large"))),
]
HERE, AWAY, ENDED = "here", "away", "ended"
ENDED_THERE = 0
PROMPTS = st.integers(1, 8).flatmap(lambda size: st.lists(st.integers(0, 1), min_size=size, max_size=size))
HOMES = [f"home{number}" for number in range(5)]


@dataclass
class Record:
    """What the outside knows of a request. `where`: who may append; `length`: its tokens as committed."""

    asked: Request
    where: str
    tokens: list[int]
    seen: list[int]
    owner: ModelIndex | None = None
    seq: int = -1
    raw_steps: int = 0
    is_aborted: bool = False
    closes: list[Close] = field(default_factory=list)
    heard: list[Handoff] = field(default_factory=list)


class SchedulerMachine(RuleBasedStateMachine):
    """Model 0 under test; it has 6 blocks of 2 tokens, so two requests are too many."""

    @initialize(batch_tokens_max=st.integers(4, 12), thresholds=st.tuples(*[st.integers(1, 4)] * MODELS))
    def start(self, batch_tokens_max: int, thresholds: tuple[int, ...]) -> None:
        self.now = 0.0
        self.scheduler: Scheduler = scheduler(
            models=MODELS,
            thresholds=thresholds,
            num_blocks=6,
            block_size=2,
            length_max=12,
            batch_max=4,
            batch_tokens_max=batch_tokens_max,
            deadline_s=2.0,
        )
        self.announced: dict[RequestKey, int] = {}
        self.records: dict[RequestKey, Record] = {}
        self.plan: BatchPlan | None = None
        self.down: set[int] = set()

    # The home.

    @rule(prompt=PROMPTS, policy=st.sampled_from(POLICIES))
    def admit(self, prompt: list[int], policy: PolicySpec) -> None:
        record = self.begun(prompt, policy, HERE)
        self.take(self.scheduler.admit(record.asked, self.now))

    @rule(data=st.data())
    def admit_again(self, data: st.DataObject) -> None:
        record = self.drawn(data, (HERE, AWAY, ENDED))
        if record is not None:
            assert self.scheduler.on(Admit(record.asked), self.now) == []

    @rule()
    def admit_what_can_never_fit(self) -> None:
        record = self.begun([1] * 9, POLICIES[0], HERE)
        self.take(self.scheduler.admit(record.asked, self.now))
        assert record.closes[0].reason is Reason.ERROR

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        record = self.drawn(data, (HERE, AWAY, ENDED))
        if record is not None:
            record.is_aborted = True
            was_here = record.where is HERE
            self.take(self.scheduler.abort(*record.asked.key))
            assert record.where is ENDED or not was_here

    @rule(prompt=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def abort_before_it_is_admitted(self, prompt: list[int]) -> None:
        record = self.begun(prompt, POLICIES[0], HERE)
        self.take(self.scheduler.on(Abort(*record.asked.key), self.now))
        assert not record.closes
        self.take(self.scheduler.admit(record.asked, self.now))
        assert record.closes[0].reason is Reason.CANCELLED

    @rule(home=st.sampled_from(HOMES))
    def lose_home(self, home: str) -> None:
        for record in self.records.values():
            record.is_aborted |= record.where is not ENDED and record.asked.home == home
        self.take(self.scheduler.lose_home(home))

    # The peers.

    @rule(
        prompt=PROMPTS,
        policy=st.sampled_from(POLICIES),
        source=st.integers(1, 2),
    )
    def meet(self, prompt: list[int], policy: PolicySpec, source: int) -> None:
        """First contact: a peer hands over a request that it was given."""
        record = self.begun(prompt, policy, AWAY)
        record.seen[source] = len(prompt)
        record.owner = ModelIndex(source)
        self.hand_over(record, [])

    @rule(data=st.data(), tokens=st.lists(st.integers(0, 1), max_size=3), is_discarding=st.booleans())
    def return_control(self, data: st.DataObject, tokens: list[int], is_discarding: bool) -> None:
        record = self.drawn(data, (AWAY,))
        if record is not None:
            room = record.asked.length_max - 1 - len(record.tokens)
            self.hand_over(record, tokens[: max(0, room)], int(is_discarding and not tokens))

    @rule(data=st.data())
    def repeat_a_hand_off(self, data: st.DataObject) -> None:
        record = self.drawn(data, (HERE, AWAY, ENDED))
        if record is not None and record.heard:
            handoff = data.draw(st.sampled_from(record.heard))
            assert self.scheduler.resume(handoff, self.now) == []

    @rule(model=st.integers(1, 2))
    def hear_of(self, model: int) -> None:
        """A peer admits a request of its own."""
        number = len(self.announced)
        heard = RequestKey(RequestId(f"r{number % IDS}"), -1 - number)
        self.announced[heard] = model
        assert self.scheduler.on(Admitted(*heard, ModelIndex(model)), self.now) == []

    @rule(data=st.data())
    def hear_the_end_of(self, data: st.DataObject) -> None:
        if self.announced:
            name = data.draw(st.sampled_from(sorted(self.announced)))
            finished = Finished(*name, ModelIndex(self.announced[name]))
            self.announced[name] = ENDED_THERE
            assert self.scheduler.on(finished, self.now) == []

    @rule(data=st.data())
    def finish_elsewhere(self, data: st.DataObject) -> None:
        record = self.drawn(data, (AWAY,))
        if record is not None:
            self.end_elsewhere(record)

    @rule(model=st.integers(1, 2))
    def lose_peer(self, model: int) -> None:
        self.down.add(model)
        held = [record for record in self.records.values() if record.where is AWAY and record.owner == model]
        parked = {sequence.key for sequence in self.scheduler.roster.queues.parked.values()}
        self.take(self.scheduler.lose_peer(ModelIndex(model)))
        for name in [name for name, announcer in self.announced.items() if announcer == model]:
            self.announced[name] = ENDED_THERE
        for record in held:
            assert record.where is ENDED or record.asked.key not in parked
            record.where = ENDED

    @rule(model=st.integers(1, 2))
    def restore_peer(self, model: int) -> None:
        self.down.discard(model)
        self.scheduler.restore_peer(ModelIndex(model))

    # The engine and the clock.

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.plan is None)
    @rule(turns=st.integers(1, 8), is_answered=st.booleans(), data=st.data())
    def work(self, turns: int, is_answered: bool, data: st.DataObject) -> None:
        """Steps one after the other; the peers answer after each, or later."""
        for _ in range(turns):
            self.now += 1.0
            self.launch()
            if self.plan is not None:
                self.complete(data)
            if is_answered:
                self.return_control(data, [1], False)

    @precondition(lambda self: self.plan is None)
    @rule()
    def launch(self) -> None:
        planned = self.scheduler.plan(self.now)
        if isinstance(planned, BatchPlan):
            assert planned.rows, "an empty batch"
            self.plan = planned

    @precondition(lambda self: self.plan is not None)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        plan = self.taken_plan()
        tokens = [data.draw(st.sampled_from([0, 1, 1, 1, EOS])) for _ in plan.sampling_rows]
        self.take(self.scheduler.apply(plan, StepOutput(np.array(tokens, dtype=np.int64)), self.now))

    @precondition(lambda self: self.plan is not None)
    @rule()
    def fail(self) -> None:
        plan = self.taken_plan()
        self.take(self.scheduler.fail(plan, "TR_RUNNER: out of memory"))
        for row in plan.rows:
            assert self.records[row.key].where is ENDED

    @invariant()
    def everything_is_accounted_for(self) -> None:
        if not hasattr(self, "records"):
            return
        self.scheduler.check_integrity()
        queues = self.scheduler.roster.queues
        for key, record in self.records.items():
            sequence = queues.find(key)
            assert len(record.closes) <= 1
            if record.where is ENDED:
                assert sequence is None, record
            elif record.where is HERE:
                assert sequence is not None and sequence.state is not State.PENDING_RETURN, record
                assert sequence.tokens == record.tokens
            else:
                assert (sequence is None) == record.is_aborted or not record.heard, record
        live = {key for key, record in self.records.items() if queues.find(key) is not None}
        live |= {name for name, announcer in self.announced.items() if announcer != ENDED_THERE}
        assert set(self.scheduler.roster.live) == live

    def teardown(self) -> None:
        """Give everything back, run until nothing is left: each request has ended, here or elsewhere."""
        if not hasattr(self, "records"):
            return
        self.down.clear()
        for _ in range(500):
            for record in [record for record in self.records.values() if record.where is AWAY]:
                if len(record.tokens) + 1 < record.asked.length_max:
                    self.hand_over(record, [1])
                else:
                    self.end_elsewhere(record)
            self.now += 10.0
            planned = self.plan or self.scheduler.plan(self.now)
            if not isinstance(planned, BatchPlan):
                break
            self.plan = None
            tokens = np.ones(len(planned.sampling_rows), dtype=np.int64)
            self.take(self.scheduler.apply(planned, StepOutput(tokens), self.now))
        assert all(record.where is ENDED for record in self.records.values()), self.records
        assert len(self.scheduler.roster.queues) == 0
        assert self.scheduler.roster.kv.pool.num_held == 0

    # Bookkeeping.

    def begun(self, prompt: list[int], policy: PolicySpec, where: str) -> Record:
        number = len(self.records)
        home = HOMES[number % len(HOMES)]
        asked = request(
            f"r{number % IDS}", prompt, epoch=number, max_tokens=4, policy=policy, home=home
        )
        record = Record(asked, where, list(prompt), [0] * MODELS)
        if where is HERE:
            record.seen[0] = len(prompt)
        self.records[asked.key] = record
        return record

    def drawn(self, data: st.DataObject, where: Iterable[str]) -> Record | None:
        found = [record for record in self.records.values() if record.where in where]
        return data.draw(st.sampled_from(found)) if found else None

    def taken_plan(self) -> BatchPlan:
        plan, self.plan = self.plan, None
        assert plan is not None
        return plan

    def hand_over(self, record: Record, tokens: list[int], attempt: int = 0) -> None:
        """The owner of `record` commits `tokens` and hands the right to append to the scheduler."""
        record.tokens += tokens
        record.raw_steps += len(tokens)
        record.seq += 1
        base = record.seen[0]
        assert record.owner is not None
        record.seen[record.owner] = record.seen[0] = len(record.tokens)
        handoff = Handoff(
            *record.asked.key,
            record.owner,
            ModelIndex(0),
            record.seq,
            base,
            tuple(record.tokens[base:]),
            tuple(record.seen),
            attempt,
            record.raw_steps,
            record.asked if base == 0 else None,
        )
        record.where = HERE
        record.heard.append(handoff)
        self.take(self.scheduler.resume(handoff, self.now))
        assert not record.is_aborted or record.where is ENDED, "an aborted request went on"

    def end_elsewhere(self, record: Record) -> None:
        record.where = ENDED
        finished = Finished(*record.asked.key, ModelIndex(1))
        assert self.scheduler.on(finished, self.now) == []

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Emit():
                    self.records[effect.key].tokens += effect.token_ids
                    assert self.records[effect.key].where is HERE
                case Close():
                    self.close(effect)
                case Send(message=Handoff()):
                    self.sent(effect.message)

    def close(self, close: Close) -> None:
        record = self.records[close.key]
        assert record.where is not ENDED and not record.closes, (close, record)
        assert close.length == len(record.tokens) - record.asked.prompt_len
        record.closes.append(close)
        record.where = ENDED

    def sent(self, handoff: Any) -> None:
        record = self.records[handoff.key]
        assert handoff.target not in self.down and handoff.seq == record.seq + 1
        assert list(handoff.token_ids) == record.tokens[record.seen[handoff.target] :]
        record.where, record.owner, record.seq = AWAY, handoff.target, handoff.seq
        record.seen, record.raw_steps = list(handoff.seen), handoff.raw_steps


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
