"""When tokens leave: the coalescer, the reader's credit and the door's limits."""

import pytest

from router_backend.core.request import ModelIndex
from router_backend.stream.admission import AdmissionLimits, DrainingError, Occupancy, QueueFullError
from router_backend.stream.coalescer import Bundle, Coalescer
from router_backend.stream.commit_order import Committed
from router_backend.stream.reader_credit import Credit, ReaderCredit

AT_ONCE, NEVER = float("-inf"), float("inf")


def token(token_id: int, model: int = 0) -> Committed:
    return Committed(token_id, ModelIndex(model))


def test_the_first_text_leaves_at_once() -> None:
    coalescer = Coalescer(flush_tokens=4, flush_s=1.0)
    assert coalescer.due_at == NEVER
    coalescer.add("", token(1), 0)
    assert coalescer.due_at == NEVER
    coalescer.add("é", token(2, 1), 1)
    assert coalescer.due_at == AT_ONCE
    assert coalescer.take(9.0) == Bundle("é", (1, 2), (0, 1), (0, 1))


def test_later_text_leaves_when_the_last_response_is_long_enough_ago() -> None:
    coalescer = Coalescer(flush_tokens=4, flush_s=1.0)
    coalescer.add("a", token(1), 1)
    coalescer.take(5.0)
    coalescer.add("b", token(2), 1)
    coalescer.add("c", token(3), 1)
    assert coalescer.due_at == 6.0
    assert coalescer.take(6.0) == Bundle("bc", (2, 3), (0, 0), (1, 1))


@pytest.mark.case("F73")
def test_a_long_slow_answer_leaves_in_fewer_and_fewer_responses() -> None:
    """100,000 tokens, one each 20 ms, to a client of which nobody knows whether it reads."""
    coalescer = Coalescer(flush_tokens=8, flush_s=0.02)
    responses, at_first = 0, 0
    for number in range(100_000):
        coalescer.add("a", token(1), 1)
        if 0.02 * number >= coalescer.due_at:
            coalescer.take(0.02 * number)
            responses += 1
        if number == 3_000:
            at_first = responses
    assert at_first >= 1_500
    assert responses < 20_000


def test_later_text_leaves_by_count_even_if_it_is_empty() -> None:
    coalescer = Coalescer(flush_tokens=2, flush_s=1.0)
    coalescer.add("a", token(1), 1)
    coalescer.take(0.0)
    coalescer.add("", token(2), 0)
    assert coalescer.due_at == NEVER
    coalescer.add("", token(3), 0)
    assert coalescer.due_at == AT_ONCE


def test_many_tokens_without_text_do_not_make_a_first_response() -> None:
    coalescer = Coalescer(flush_tokens=2, flush_s=1.0)
    for number in range(3):
        coalescer.add("", token(number), 0)
    assert coalescer.due_at == NEVER


def test_a_slow_reader_is_held_then_given_up() -> None:
    credit = ReaderCredit(unsent_max=2, patience_s=10.0)
    seen = [credit.observe(unsent, now) for unsent, now in ((1, 0.0), (2, 1.0), (3, 10.9), (2, 11.0))]
    assert seen == [Credit.SEND, Credit.HOLD, Credit.HOLD, Credit.CANCEL]


def test_a_reader_that_reads_again_gets_its_patience_back() -> None:
    credit = ReaderCredit(unsent_max=2, patience_s=10.0)
    seen = [credit.observe(unsent, now) for unsent, now in ((2, 0.0), (1, 9.0), (2, 9.5), (2, 19.0))]
    assert seen == [Credit.HOLD, Credit.SEND, Credit.HOLD, Credit.HOLD]


def test_admission_refuses_beyond_live_and_queue() -> None:
    limits = AdmissionLimits(live_max=2, queue_max=1)
    limits.admit(Occupancy(live=2, waiting=0))
    with pytest.raises(QueueFullError, match="TR_QUEUE_FULL: 2 requests are live and 1 wait"):
        limits.admit(Occupancy(live=2, waiting=1))
    with pytest.raises(DrainingError, match="TR_DRAINING"):
        limits.admit(Occupancy(live=0, waiting=0, is_draining=True))
    assert [limits.has_room(live) for live in (1, 2)] == [True, False]
