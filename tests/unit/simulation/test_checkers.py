"""Each checker fails when what it guards is broken; traces and homes tell what happened."""

from __future__ import annotations

import pytest

from router_backend.core.effects import Close, Effect, Emit, Reason, Send
from router_backend.core.replicas import ReplicaIndex, Replicas
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Finished, Handoff
from router_backend.simulation.checkers import Checkers, Violation
from router_backend.simulation.commits import CommitLog
from router_backend.simulation.home import Home
from router_backend.simulation.trace import Trace, TraceEvent
from tests.builders import plan, request, scheduler

ASKED = request("r", (1, 2, 3), max_tokens=3)
SMALL, LARGE = ModelIndex(0), ModelIndex(1)
PLAIN = Replicas((1, 1))
SMALL_2 = ReplicaIndex(2)
"""The second replica of the small model, where each has two."""


def emit(position: int, token: int, model: ModelIndex = SMALL) -> Emit:
    return Emit("front", ASKED.request_id, 0, position, (token,), model)


def handoff(**changes: object) -> Send:
    """After one commit by the small model."""
    message = Handoff(ASKED.request_id, 0, SMALL, LARGE, 0, 0, (1, 2, 3, 7), (4, 4), request=ASKED)
    return Send(LARGE, message.replaced(**changes))  # type: ignore[arg-type]


def closing(length: int, reason: Reason = Reason.LENGTH) -> Close:
    return Close("front", ASKED.request_id, 0, reason, length)


def checkers(*effects: Effect, is_lossy: bool = False, replicas: Replicas = PLAIN) -> Checkers:
    """The books after the small model has admitted the request and caused these effects."""
    commits = CommitLog()
    commits.open(ASKED)
    books = Checkers(commits, replicas, is_lossy)
    books.admitted(ASKED, SMALL)
    for effect in effects:
        books.see(SMALL, effect)
    return books


def test_an_honest_history_passes_and_is_written_down():
    books = checkers(emit(0, 7), handoff())
    books.see(LARGE, emit(1, 8, LARGE))
    books.see(LARGE, closing(2, Reason.STOP))
    books.see(LARGE, Send(SMALL, Finished(ASKED.request_id, 0, LARGE)))

    assert books.commits[ASKED.key].answer == [7, 8]
    assert books.commits[ASKED.key].writers == [0, 1]
    assert (books.handoffs, list(books.closes)) == (1, [ASKED.key])


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (emit(2, 8), "commit out of order"),
        (emit(1, 8, LARGE), "commit out of order"),
        (handoff(base=1, token_ids=(2, 3, 7)), "not the unseen suffix"),
        (handoff(token_ids=(1, 2, 3)), "other tokens than committed"),
        (handoff(token_ids=(1, 2, 3, 9)), "other tokens than committed"),
        (handoff(seen=(3, 4)), "the ledger is wrong"),
        (handoff(seq=1), "not numbered in order"),
        (handoff(seq=-1), "sent again without a loss"),
        (handoff(request=None), "first contact"),
        (handoff(source=LARGE), "another's name"),
        (handoff(target=SMALL), "another's name"),
    ],
)
def test_a_wrong_effect_is_a_violation(wrong: Effect, complaint: str):
    books = checkers(emit(0, 7))

    with pytest.raises(Violation, match=complaint):
        books.see(SMALL, wrong)


@pytest.mark.parametrize("wrong", [emit(1, 8), handoff()])
def test_a_life_stays_on_the_replica_of_a_model_that_it_began_on(wrong: Effect):
    books = checkers(emit(0, 7), replicas=Replicas((2, 2)))

    with pytest.raises(Violation, match="on two replicas"):
        books.see(SMALL_2, wrong)


def test_a_life_is_handed_to_one_replica_of_a_model():
    books = checkers(emit(0, 7), handoff(), replicas=Replicas((1, 2)))

    with pytest.raises(Violation, match="on two replicas"):
        books.see(SMALL, Send(ReplicaIndex(2), handoff(seq=1).message))


def test_nobody_commits_what_it_has_not_seen_the_beginning_of():
    with pytest.raises(Violation, match="lacks tokens"):
        checkers(emit(0, 7)).see(LARGE, emit(1, 8, LARGE))


def test_a_request_is_closed_once_and_silent_afterwards():
    books = checkers(emit(0, 7), closing(1))

    with pytest.raises(Violation, match="closed twice"):
        books.see(LARGE, closing(1))
    with pytest.raises(Violation, match="commit after the end"):
        books.see(SMALL, emit(1, 8))


def test_a_resent_hand_off_is_what_a_loss_is_answered_with():
    books = checkers(emit(0, 7), handoff(), handoff(), is_lossy=True)

    assert (books.handoffs, books.resent) == (1, 1)


def test_two_owners_a_foreign_text_and_a_leaked_block_are_noticed():
    one, other = scheduler(), scheduler(model=1)
    for chosen in (one, other):
        chosen.admit(ASKED, 0.0)
    books = checkers()
    with pytest.raises(Violation, match="two models may append"):
        books.after_turn([one, other], [0, 1])

    next(iter(one.roster.queues)).tokens[1] = 9
    with pytest.raises(Violation, match="not a prefix"):
        books.after_turn([one], [0])

    one.roster.kv.pool.allocate()
    with pytest.raises(AssertionError):
        books.after_turn([one], [0])


def test_an_idle_model_with_an_old_head_waits_beyond_the_bound():
    waiting = scheduler(thresholds=(4, 1), deadline_s=2.0)
    waiting.admit(ASKED, 1.0)
    books = checkers()

    books.idle(waiting, 2.9)
    with pytest.raises(Violation, match="waits beyond the bound"):
        books.idle(waiting, 3.0)


def test_the_end_is_checked_for_what_is_left_and_for_what_the_client_got():
    left = scheduler()
    left.admit(ASKED, 0.0)
    plan(left)
    home = Home()
    home.open(ASKED, 0.0)
    books = checkers(emit(0, 7), closing(1))
    with pytest.raises(Violation, match="never ended"):
        books.at_end([scheduler()], home)

    home.hear(closing(1), 1.0)
    home.hear(emit(0, 7).replaced(token_ids=(6,)), 2.0)
    with pytest.raises(Violation, match="left behind"):
        books.at_end([left], home)
    with pytest.raises(Violation, match="the client saw another text"):
        books._check_complete(home)


def test_a_home_ends_an_answer_when_it_has_the_close_and_every_token():
    home = Home()
    home.open(ASKED, 1.0)
    for at, message in enumerate([closing(2), emit(1, 8), closing(2), emit(0, 7), emit(1, 8)], 2):
        home.hear(message, float(at))

    answer = home.answers[ASKED.key]
    assert (answer.token_ids, answer.token_times, answer.latency_s) == ([7, 8], [5.0, 5.0], 4.0)
    assert (home.unended, home.late_messages) == ([], 1)


def test_a_home_that_gives_up_hears_no_more():
    home = Home()
    home.open(ASKED, 0.0)
    home.give_up(ASKED.key, 9.0)
    home.hear(closing(0), 10.0)
    home.give_up(ASKED.key, 11.0)

    answer = home.answers[ASKED.key]
    assert (answer.is_given_up, answer.ended_at, answer.close, home.late_messages) == (True, 9.0, None, 1)


def test_an_answer_that_has_not_ended_has_no_latency():
    home = Home()
    home.open(ASKED, 0.0)

    with pytest.raises(AssertionError, match="r has not ended"):
        _ = home.answers[ASKED.key].latency_s


def test_a_trace_is_data_with_a_digest():
    one, other = Trace(), Trace()
    for trace in (one, other):
        trace.add(0.5, "launch", 1, "alone r:0-3")

    assert one.events == [TraceEvent(0.5, "launch", 1, "alone r:0-3")]
    assert one.digest() == other.digest() and len(one.digest()) == 64
    other.add(0.75, "done", 1, "1")
    assert one.digest() != other.digest()
    assert one.lines() == ["     0.500   1 launch   alone r:0-3"]
