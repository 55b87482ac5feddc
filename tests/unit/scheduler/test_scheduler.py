"""Steps: rows in, effects out. Runner outputs are written by hand."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.effects import Close, Emit, Reason, Send, Usage
from router_backend.core.errors import ConfigError, RemoteProtocolError
from router_backend.core.request import ModelIndex, Sampling
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Admitted, Beat, Finished, Handoff
from router_backend.policies.base import BaseRouter, Place
from router_backend.policies.guard import GuardedRouter
from router_backend.scheduler.batch import Hold, LaunchReason, Needs, Row
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import (
    ALWAYS,
    EOS,
    NAMES,
    VOCAB,
    closes,
    emitted,
    handoffs,
    key,
    output,
    plan,
    request,
    scheduler,
    step,
    stitch,
)

SMALL, LARGE = ModelIndex(0), ModelIndex(1)


def test_a_new_request_is_announced_to_every_peer():
    effects = scheduler(models=3).admit(request(), 0.0)

    announcement = Admitted(request().request_id, 0, SMALL)
    assert effects == [Send(LARGE, announcement), Send(ModelIndex(2), announcement)]


def test_a_prompt_is_fed_whole_and_its_last_logits_are_sampled():
    chosen = scheduler()
    chosen.admit(request(prompt=(5, 6, 7)), 0.0)
    planned = plan(chosen)

    history = ([5, 6, 7], 3, frozenset({99}))
    assert planned.rows == (Row("r", [5, 6, 7], 0, [0], True, Sampling(), 0, *history),)
    assert (planned.reason, planned.needs, planned.num_tokens) == (LaunchReason.THRESHOLD, Needs(), 3)


def test_a_committed_token_is_emitted_at_once_and_fed_in_the_next_step():
    chosen = scheduler()
    chosen.admit(request(prompt=(5, 6, 7)), 0.0)

    assert step(chosen, 40) == [Emit("front", "r", 0, 0, (40,), SMALL)]
    assert plan(chosen).rows[0].token_ids == [40]


def test_max_tokens_ends_the_request_after_its_last_token():
    chosen = scheduler()
    chosen.admit(request(max_tokens=2), 0.0)
    step(chosen, 40)
    effects = step(chosen, 41)

    assert effects == [
        Emit("front", "r", 0, 1, (41,), SMALL),
        Close("front", "r", 0, Reason.LENGTH, 2, "", Usage(0, 0)),
        Send(LARGE, Finished(request().request_id, 0, SMALL)),
    ]
    assert chosen.plan(1.0) == Hold()
    chosen.check_integrity()


def test_an_end_token_ends_the_request_and_counts():
    chosen = scheduler()
    chosen.admit(request(), 0.0)
    effects = step(chosen, EOS)

    assert emitted(effects) == [(0, (EOS,))]
    assert closes(effects) == [Close("front", "r", 0, Reason.STOP, 1)]


def test_an_uncertain_token_is_discarded_and_the_request_handed_over():
    chosen = scheduler()
    chosen.admit(request(policy=stitch(0.5)), 0.0)
    effects = step(chosen, 40, entropy=[4.0])

    (handoff,) = handoffs(effects)
    assert (handoff.target, handoff.loc, handoff.token_ids, handoff.attempt) == (LARGE, 3, (1, 2, 3), 1)
    assert emitted(effects) == []
    assert (chosen.counters.sampled, chosen.counters.discarded) == (1, 1)
    assert chosen.plan(0.0) == Hold()
    assert chosen.gauges()["parked"] == 1


def test_a_discarded_end_token_ends_nothing():
    chosen = scheduler()
    chosen.admit(request(policy=stitch(0.5)), 0.0)

    assert closes(step(chosen, EOS, entropy=[4.0])) == []


def test_a_return_appends_the_peers_tokens_and_feeds_only_them():
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=stitch(0.5)), 0.0)
    (there,) = handoffs(step(small, 40, entropy=[4.0]))
    large.resume(there, 0.0)
    (back,) = handoffs(step(large, 50, entropy=[0.1]))
    small.resume(back, 0.0)

    assert (back.base, back.token_ids) == (3, (50,))
    assert plan(small).rows[0][1:3] == ([50], 3)
    assert (small.counters.returns, small.counters.direct_resumes) == (1, 1)
    assert small.counters.prefix_lookups_on_return == 0


def test_the_large_model_keeps_its_certain_token_and_stays_while_uncertain():
    large = scheduler(1)
    small = scheduler(0)
    small.admit(request(policy=stitch(0.5)), 0.0)
    large.resume(handoffs(step(small, 40, entropy=[4.0]))[0], 0.0)

    assert emitted(step(large, 50, entropy=[4.0])) == [(0, (50,))]
    effects = step(large, 51, entropy=[0.0])
    assert emitted(effects) == [(1, (51,))]
    assert handoffs(effects)[0].token_ids == (50, 51)


def test_a_kept_token_that_ends_the_request_sends_no_work():
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=stitch(0.5), max_tokens=1), 0.0)
    large.resume(handoffs(step(small, 40, entropy=[4.0]))[0], 0.0)
    effects = step(large, 50, entropy=[0.0])

    assert handoffs(effects) == []
    assert closes(effects) == [Close("front", "r", 0, Reason.LENGTH, 1, "", Usage(1, 1))]


class Dropping(BaseRouter):
    """The literal reading of R-Stitch: whoever leaves takes its token along."""

    def route(self, step_batch):
        return np.ones(len(step_batch), dtype=np.int64)

    def send(self, sequence, target):
        return handoff_to(sequence, target, drop=1)


def at_the_large_model(router_class: type[BaseRouter]) -> Scheduler:
    """A large model that holds a request which the small one has just discarded a token of."""
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=ALWAYS), 0.0)
    (there,) = handoffs(step(small, 40))
    large.resume(there, 0.0)
    place = Place(LARGE, NAMES[:2], SMALL, VOCAB)
    large.roster.queues.find(key()).router = GuardedRouter("fixed", router_class(place))
    return large


def test_the_second_discard_at_a_position_is_refused_between_two_models():
    large = at_the_large_model(Dropping)
    effects = step(large, 50)

    assert (emitted(effects), large.counters.forced_keeps) == ([(0, (50,))], 1)
    assert [(handoff.loc, handoff.attempt) for handoff in handoffs(effects)] == [(4, 0)]


class Astray(Dropping):
    def route(self, step_batch):
        return np.full(len(step_batch), 7)


class Broken(Dropping):
    def route(self, step_batch):
        return 1 // 0


class Fractional(Dropping):
    def route(self, step_batch):
        return np.full(len(step_batch), 0.5)


class Elsewhere(Dropping):
    def send(self, sequence, target):
        return handoff_to(sequence, LARGE)


class Greedy(Dropping):
    def send(self, sequence, target):
        return handoff_to(sequence, target, drop=2)


@pytest.mark.parametrize(
    ("router", "complaint"),
    [
        (Astray, "fixed.route: answered 7, which is no peer"),
        (Elsewhere, "fixed.send: made a message for model 1 that ends at 4"),
        (Greedy, "fixed.send: LocalProtocolError: TR_PROTOCOL: only the sampled token can be dropped"),
        (Broken, "fixed.route: ZeroDivisionError: "),
        (Fractional, "fixed.route: answered float64[1], not int[1]"),
    ],
)
def test_a_policy_that_answers_nonsense_ends_its_request_by_name(router, complaint):
    large = at_the_large_model(router)
    (close,) = closes(step(large, 50))

    assert close.reason is Reason.ERROR
    assert close.message.startswith(f"TR_POLICY: {complaint}")
    assert large.counters.policy_faults == 1
    large.check_integrity()


def test_a_policy_that_raises_costs_nobody_else_anything():
    chosen = scheduler()
    chosen.admit(request("good"), 0.0)
    chosen.admit(request("bad", policy=ALWAYS), 0.0)
    broken = Broken(Place(SMALL, NAMES, SMALL, VOCAB))
    chosen.roster.queues.find(key("bad")).router = GuardedRouter("mine", broken)
    effects = step(chosen, 40, 41)

    assert [close.request_id for close in closes(effects)] == ["bad"]
    assert [effect.request_id for effect in effects if isinstance(effect, Emit)] == ["good"]
    chosen.check_integrity()


class Refusing(BaseRouter):
    def receive(self, sequence, handoff):
        raise ValueError("not from you")


def test_a_policy_that_refuses_a_return_ends_that_request():
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=ALWAYS), 0.0)
    (there,) = handoffs(step(small, 40))
    large.resume(there, 0.0)
    (back,) = handoffs(step(large, 50))
    refusing = Refusing(Place(SMALL, NAMES[:2], SMALL, VOCAB))
    small.roster.queues.find(key()).router = GuardedRouter("mine", refusing)
    (close,) = closes(small.resume(back, 0.0))

    assert close.message == "TR_POLICY: mine.receive: ValueError: not from you"
    small.check_integrity()


def test_a_sick_row_is_counted_and_falls_back():
    chosen = scheduler()
    chosen.admit(request(policy=stitch(0.5)), 0.0)
    effects = step(chosen, 40, entropy=[float("nan")])

    assert (emitted(effects), chosen.counters.unreadable_signals) == ([(0, (40,))], 1)


def test_a_request_that_only_discards_is_stopped_by_its_step_budget():
    chosen = scheduler(models=3)
    chosen.admit(request(max_tokens=1), 0.0)
    sequence = chosen.roster.queues.find(key())
    sequence.router = Dropping(Place(SMALL, NAMES, SMALL, VOCAB))
    sequence.raw_steps = request(max_tokens=1).raw_steps_max(3)
    (close,) = closes(step(chosen, 40))

    assert "TR_LIVELOCK: 28 tokens sampled for 0 kept" in close.message


def test_rows_run_in_the_order_in_which_they_began_to_wait():
    chosen = scheduler(batch_max=2, batch_tokens_max=64)
    for name in "abc":
        chosen.admit(request(name), 0.0)
    planned = plan(chosen)
    chosen.apply(planned, output(40, 40), 1.0)

    assert [row.request_id for row in planned.rows] == ["a", "b"]
    assert [row.request_id for row in plan(chosen).rows] == ["c", "a"]


def test_a_long_prompt_comes_in_chunks_that_leave_room_for_the_others():
    chosen = scheduler(batch_max=4, batch_tokens_max=8)
    chosen.admit(request("long", range(20)), 0.0)
    chosen.admit(request("short", (1, 2)), 0.0)
    planned = plan(chosen)

    assert [(row.request_id, len(row.token_ids), row.is_sampling) for row in planned.rows] == [
        ("long", 7, False),
        ("short", 1, False),
    ]
    assert chosen.apply(planned, output(), 0.0) == []
    assert [(row.start, len(row.token_ids)) for row in plan(chosen).rows] == [(7, 7), (1, 1)]


def test_only_the_last_chunk_is_routed():
    chosen = scheduler(batch_tokens_max=8)
    chosen.admit(request(prompt=range(12), policy=stitch(0.5)), 0.0)

    assert step(chosen) == []
    assert len(handoffs(step(chosen, 40, entropy=[4.0]))) == 1


def test_an_equal_prompt_finds_its_blocks():
    chosen = scheduler()
    chosen.admit(request("a", range(9)), 0.0)
    step(chosen, 40)
    chosen.admit(request("b", range(9)), 0.0)
    planned = plan(chosen)

    assert [(row.request_id, row.start) for row in planned.rows] == [("a", 9), ("b", 8)]
    assert chosen.counters.prefix_hit_tokens == 8


def test_under_pressure_the_cheapest_parked_sequence_loses_its_cache():
    chosen = scheduler(num_blocks=4, length_max=16)
    chosen.admit(request("parked", (1, 2, 3), policy=stitch(0.5), max_tokens=4), 0.0)
    (there,) = handoffs(step(chosen, 40, entropy=[4.0]))
    chosen.admit(request("big", range(14), max_tokens=2), 0.0)
    step(chosen, 41)
    back = Handoff(there.request_id, 0, LARGE, SMALL, 1, 3, (50,), (4, 4))
    chosen.resume(back, 0.0)

    assert chosen.counters.parked_evictions == 1
    assert (chosen.counters.recomputes, chosen.counters.direct_resumes) == (1, 0)
    chosen.check_integrity()


def test_a_request_that_can_never_fit_is_refused_with_the_arithmetic():
    (close, *_) = scheduler(num_blocks=2).admit(request(prompt=range(5), max_tokens=6), 0.0)

    assert close.reason is Reason.ERROR
    assert "prompt (5) + max_tokens (6) = 11 tokens can never fit model 0 (at most 8)" in close.message


def test_a_failed_batch_ends_its_requests_and_no_others():
    chosen = scheduler(batch_max=1, batch_tokens_max=8)
    chosen.admit(request("a"), 0.0)
    chosen.admit(request("b"), 0.0)
    effects = chosen.fail(plan(chosen), "TR_RUNNER: boom")

    assert closes(effects) == [Close("front", "a", 0, Reason.ERROR, 0, "TR_RUNNER: boom", Usage(0, 0))]
    assert plan(chosen).rows[0].request_id == "b"


def test_each_row_is_routed_by_its_own_policy():
    chosen = scheduler()
    chosen.admit(request("a", policy=stitch(0.1)), 0.0)
    chosen.admit(request("b"), 0.0)
    chosen.admit(request("c", policy=stitch(0.9)), 0.0)
    planned = plan(chosen)
    effects = chosen.apply(planned, output(40, 41, 42, entropy=[2.0, 2.0, 2.0]), 0.0)

    assert planned.needs == Needs(entropy=True)
    assert [handoff.request_id for handoff in handoffs(effects)] == ["a"]
    assert [effect.request_id for effect in effects if isinstance(effect, Emit)] == ["b", "c"]


def test_a_message_that_is_not_for_a_subserver_is_a_remote_error():
    with pytest.raises(RemoteProtocolError, match="Beat is not for a subserver"):
        scheduler().on(Beat("x", 1), 0.0)


@pytest.mark.parametrize(
    ("changes", "key"), [({"batch_max": 0}, "batch_max"), ({"batch_tokens_max": 4}, "batch_tokens_max")]
)
def test_settings_that_cannot_work_are_refused_by_name(changes, key):
    with pytest.raises(ConfigError, match=key):
        scheduler(**changes)
