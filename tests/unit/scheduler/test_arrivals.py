"""Late, doubled, lost and surprising messages, cancellations, deaths."""

from __future__ import annotations

import tracemalloc

import pytest

from router_backend.core.effects import Close, Reason, Send, Usage
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff.message import Abort, Admit, Admitted, Finished, Handoff, Nack
from router_backend.scheduler.batch import Hold, LaunchReason
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import closes, handoffs, key, output, plan, request, scheduler, step, stitch

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
R = RequestId("r")
CANCELLED = Close("front", "r", 0, Reason.CANCELLED, 0, "cancelled by the client", Usage(0, 0))


def parked() -> tuple[Scheduler, Handoff]:
    """A small model whose only request is at the large one, and the message that took it there."""
    small = scheduler(0)
    small.admit(request(policy=stitch(0.5)), 0.0)
    (there,) = handoffs(step(small, 40, entropy=[4.0]))
    return small, there


def reply(seq: int = 1, base: int = 3, tokens: tuple[int, ...] = (50,)) -> Handoff:
    loc = base + len(tokens)
    return Handoff(R, 0, LARGE, SMALL, seq, base, tokens, (loc, loc))


def test_a_second_copy_of_an_admission_is_dropped():
    chosen = scheduler()
    chosen.on(Admit(request()), 0.0)

    assert chosen.on(Admit(request()), 0.0) == []
    assert chosen.counters.duplicate_messages == 1


def test_a_second_copy_of_a_return_is_dropped():
    small, _ = parked()
    small.on(reply(), 0.0)

    assert small.on(reply(), 0.0) == []
    assert small.counters.duplicate_messages == 1
    assert small.roster.queues.find(key()).tokens == [1, 2, 3, 50]


def test_tokens_that_are_already_here_are_not_appended_twice():
    small, _ = parked()
    small.on(reply(base=2, tokens=(3, 50)), 0.0)

    assert small.roster.queues.find(key()).tokens == [1, 2, 3, 50]


def test_a_gap_is_asked_for_again():
    small, _ = parked()

    assert small.on(reply(base=5), 0.0) == [Send(LARGE, Nack(R, 0, SMALL, 1, 3))]
    assert small.counters.nacks == 1


def test_a_nack_is_answered_with_everything_from_where_the_peer_stands():
    small, there = parked()
    (again,) = small.on(Nack(R, 0, LARGE, there.seq, 0), 0.0)

    assert again == Send(LARGE, there)
    (shorter,) = small.on(Nack(R, 0, LARGE, there.seq, 2), 0.0)
    assert (shorter.message.base, shorter.message.token_ids, shorter.message.request) == (2, (3,), None)


@pytest.mark.parametrize("nack", [Nack(R, 0, LARGE, 7, 0), Nack(RequestId("x"), 0, LARGE, 0, 0)])
def test_a_nack_for_something_else_is_stale(nack):
    small, _ = parked()

    assert small.on(nack, 0.0) == []
    assert small.counters.stale_messages == 1


def test_a_restarted_model_gets_the_whole_request_again():
    small, there = parked()
    fresh = scheduler(1)
    later = there.starting_at(2, (3,), None)
    (nack,) = fresh.on(later, 0.0)
    (again,) = small.on(nack.message, 0.0)
    fresh.on(again.message, 0.0)

    assert fresh.roster.queues.find(key()).tokens == [1, 2, 3]


def test_a_first_contact_without_its_request_is_the_peers_mistake():
    with pytest.raises(RemoteProtocolError, match="without its request"):
        scheduler(1).on(Handoff(R, 0, SMALL, LARGE, 0, 0, (1,), (1, 1)), 0.0)


def test_a_first_contact_that_can_never_fit_is_closed_by_the_one_who_was_asked():
    _, there = parked()
    effects = scheduler(1, num_blocks=2).on(there, 0.0)

    assert closes(effects)[0].reason is Reason.ERROR
    assert "can never fit model 1 (at most 8)" in closes(effects)[0].message


def test_a_waiting_request_is_cancelled_once():
    chosen = scheduler()
    chosen.admit(request(), 0.0)

    assert chosen.abort(R) == [CANCELLED, Send(LARGE, Finished(R, 0, SMALL))]
    assert chosen.abort(R) == []
    chosen.check_integrity()


def test_a_parked_copy_is_dropped_in_silence_and_its_late_return_closes_the_request():
    small, _ = parked()

    assert small.on(Abort(R, 0), 0.0) == []
    assert small.gauges()["parked"] == small.gauges()["kv_parked"] == 0
    assert closes(small.on(reply(), 0.0)) == [
        Close("front", "r", 0, Reason.CANCELLED, 1, "cancelled by the client")
    ]
    assert small.on(reply(), 0.0) == []


def test_an_abort_that_overtakes_its_admission_still_closes_once():
    chosen = scheduler()
    chosen.on(Abort(R, 0), 0.0)

    assert closes(chosen.on(Admit(request()), 0.0)) == [
        Close("front", "r", 0, Reason.CANCELLED, 0, "cancelled by the client")
    ]
    assert chosen.on(Admit(request()), 0.0) == []


def test_an_abort_during_a_step_frees_the_blocks_when_the_step_is_over():
    chosen = scheduler()
    chosen.admit(request(), 0.0)
    planned = plan(chosen)

    assert closes(chosen.abort(R)) == [CANCELLED]
    assert chosen.gauges()["kv_running"] == 1
    assert chosen.apply(planned, output(40), 0.0) == []
    assert chosen.gauges()["kv_running"] == 0
    chosen.check_integrity()


def test_an_abort_during_a_failing_step_is_not_closed_again():
    chosen = scheduler()
    chosen.admit(request(), 0.0)
    planned = plan(chosen)
    chosen.abort(R)

    assert chosen.fail(planned, "boom") == []
    chosen.check_integrity()


def test_a_finish_elsewhere_drops_the_parked_copy():
    small, _ = parked()

    assert small.on(Finished(R, 0, LARGE), 0.0) == []
    assert (len(small.roster.queues), small.gauges()["live"]) == (0, 0)
    assert small.on(reply(), 0.0) == []
    assert small.counters.stale_messages == 1


def test_a_finish_elsewhere_also_drops_a_copy_that_waits():
    chosen = scheduler()
    chosen.admit(request(), 0.0)
    chosen.on(Finished(R, 0, LARGE), 0.0)

    assert chosen.plan(0.0) == Hold()


def test_what_is_remembered_of_the_ended_is_small_whatever_their_prompts():
    """A server that has answered for a day remembers thousands."""
    chosen, ended = scheduler(num_blocks=1000, length_max=4000), 100
    tracemalloc.start()
    for number in range(ended):
        chosen.admit(request(f"r{number}", prompt=(number % 100,) * 2000), 0.0)
        chosen.abort(RequestId(f"r{number}"))
    remembered, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert all(chosen.roster.graveyard.find(key(f"r{number}")) for number in range(ended))
    assert remembered / ended < 1500


def test_another_life_of_the_same_id_is_left_alone():
    chosen = scheduler()
    chosen.admit(request(epoch=1), 0.0)

    assert chosen.on(Abort(R, 0), 0.0) == chosen.on(Finished(R, 0, LARGE), 0.0) == []
    assert plan(chosen).rows[0].request_id == "r"


def test_announcements_count_the_live_and_bound_the_threshold():
    large = scheduler(1, thresholds=(1, 4))
    for name in "abcd":
        large.on(Admitted(RequestId(name), 0, SMALL), 0.0)
    assert large.gauges() | {"live": 4, "threshold": 4} == large.gauges()

    large.on(Finished(RequestId("a"), 0, SMALL), 0.0)
    assert (large.gauges()["live"], large.gauges()["threshold"]) == (3, 3)


def test_an_announcement_after_the_end_counts_nobody():
    large = scheduler(1)
    large.on(Finished(R, 0, SMALL), 0.0)
    large.on(Admitted(R, 0, SMALL), 0.0)

    assert large.gauges()["live"] == 0


def test_a_delayed_batch_starts_when_the_last_other_request_ends():
    large = scheduler(1, thresholds=(1, 2))
    _, there = parked()
    large.on(Admitted(R, 0, SMALL), 0.0)
    large.on(Admitted(RequestId("other"), 0, SMALL), 0.0)
    large.on(there, 0.0)
    assert large.plan(0.5) == Hold(1.0)

    large.on(Finished(RequestId("other"), 0, SMALL), 0.6)
    assert plan(large, 0.6).reason is LaunchReason.ALONE


def test_losing_a_peer_ends_what_it_held_and_refuses_to_send_more():
    small, _ = parked()
    small.admit(request("next", policy=stitch(0.5)), 0.0)
    effects = small.lose_peer(LARGE)
    assert [(close.request_id, close.reason) for close in closes(effects)] == [("r", Reason.ERROR)]
    assert "TR_PEER_LOST: model 1 stopped" in closes(effects)[0].message

    (close,) = closes(step(small, 40, entropy=[4.0]))
    assert "TR_PEER_LOST: model 1 is not running" in close.message
    small.restore_peer(LARGE)
    small.admit(request("later", policy=stitch(0.5)), 0.0)
    assert len(handoffs(step(small, 40, entropy=[4.0]))) == 1


def test_losing_a_home_ends_everything_it_owned():
    chosen = scheduler()
    chosen.admit(request("a", home="front"), 0.0)
    chosen.admit(request("b", home="router"), 0.0)

    assert [close.request_id for close in closes(chosen.lose_home("front"))] == ["a"]
    assert plan(chosen).rows[0].request_id == "b"
