"""What becomes of a request when one of its models is lost."""

from __future__ import annotations

import pytest

from router_backend.core.effects import Reason
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId
from router_backend.stream.lives import GiveUp, Lives, LossPolicy, PeerLoss, Start, Wait, end_of

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
NAMES = ("small", "large")
STITCH = PolicySpec("r_stitch", (("cutoff", 0.5),))
REQUEST = Request(RequestId("r"), (1, 2), 8, policy=STITCH, stop_ids=frozenset({9}))
BOTH, NO_LARGE, NOBODY = (True, True), (True, False), (False, False)


def lives(choice: PeerLoss, **limits: float) -> Lives:
    return Lives(LossPolicy(NAMES, choice, **limits), REQUEST, (SMALL, LARGE))  # type: ignore[arg-type]


def told(start: object) -> tuple[str, str, tuple[int, ...]]:
    """Id, policy and models of the life that begins."""
    assert isinstance(start, Start), start
    return start.request.request_id, start.request.policy.name, start.needed


def test_the_first_life_is_the_request_itself() -> None:
    assert lives(PeerLoss.FAIL).begin(BOTH) == Start(REQUEST, (SMALL, LARGE))


def test_a_request_starts_without_a_model_only_where_others_may_stand_in() -> None:
    begun = {choice: lives(choice).begin(NO_LARGE) for choice in PeerLoss}

    assert begun[PeerLoss.FAIL] is begun[PeerLoss.RETRY] is None
    assert told(begun[PeerLoss.CONTINUE_LOCAL]) == ("r", "fixed", (SMALL,))
    assert lives(PeerLoss.CONTINUE_LOCAL).begin(NOBODY) is None


def test_fail_gives_up_at_once() -> None:
    found = lives(PeerLoss.FAIL)
    found.lose(3, 10.0)

    assert found.next(BOTH, 10.0) == GiveUp()


def test_continue_local_goes_on_alone_under_a_new_id_with_whoever_lives() -> None:
    found = lives(PeerLoss.CONTINUE_LOCAL)
    found.lose(3, 10.0)
    first = found.next(NO_LARGE, 10.0)
    found.lose(5, 11.0)
    second = found.next((False, True), 11.0)
    found.lose(6, 12.0)
    third = found.next(BOTH, 12.0)

    assert [told(start) for start in (first, second, third)] == [
        ("r.1", "fixed", (SMALL,)),
        ("r.2", "fixed", (LARGE,)),
        ("r.3", "r_stitch", (SMALL, LARGE)),
    ]
    assert isinstance(second, Start)
    assert second.request.policy.options() == {"mode": "never", "entry": "large"}


def test_retry_waits_for_every_model_and_gives_up_after_its_time() -> None:
    found = lives(PeerLoss.RETRY, retry_s=5.0)
    found.lose(3, 10.0)
    waiting = [found.next(NO_LARGE, now) for now in (10.0, 14.9)]

    assert waiting == [Wait(), Wait()]
    assert told(found.next(BOTH, 14.9)) == ("r.1", "r_stitch", (SMALL, LARGE))
    found.lose(3, 14.9)
    assert found.next(BOTH, 15.0) == GiveUp()


def test_lives_that_add_nothing_come_slower_and_progress_starts_the_clock_anew() -> None:
    found = lives(PeerLoss.RETRY, retry_s=5.0)
    found.lose(3, 0.0)
    assert isinstance(found.next(BOTH, 0.0), Start)
    found.lose(3, 1.0)
    assert found.next(BOTH, 1.2) == Wait()
    assert isinstance(found.next(BOTH, 1.25), Start)
    found.lose(3, 2.0)
    assert found.next(BOTH, 2.4) == Wait()
    assert isinstance(found.next(BOTH, 2.5), Start)
    found.lose(4, 4.9)
    assert isinstance(found.next(BOTH, 4.9), Start)
    found.lose(4, 9.8)
    assert found.next(NO_LARGE, 9.8) == Wait()
    assert found.next(BOTH, 9.9) == GiveUp()


def test_a_model_that_takes_life_after_life_is_not_tried_for_ever() -> None:
    found = lives(PeerLoss.RETRY, lives_max=2)
    outcomes = []
    for length in range(3):
        found.lose(length, 0.0)
        outcomes.append(found.next(BOTH, 0.0))

    assert [type(outcome) for outcome in outcomes] == [Start, Start, GiveUp]


def test_nothing_can_be_lost_twice() -> None:
    found = lives(PeerLoss.RETRY)
    with pytest.raises(AssertionError, match="r lives"):
        found.next(BOTH, 0.0)
    found.lose(0, 0.0)
    with pytest.raises(AssertionError, match="no life to lose"):
        found.lose(0, 0.0)


def test_a_loss_ends_what_the_model_was_given_and_where_it_may_go_on_what_it_may_get() -> None:
    start = Start(REQUEST, (SMALL, LARGE))

    assert start.is_hit(SMALL, PeerLoss.FAIL) and not start.is_hit(LARGE, PeerLoss.FAIL)
    assert start.is_hit(LARGE, PeerLoss.RETRY) and start.is_hit(LARGE, PeerLoss.CONTINUE_LOCAL)
    assert not start.is_hit(ModelIndex(2), PeerLoss.RETRY)


def test_an_answer_that_is_whole_needs_nobody() -> None:
    ends = [end_of(REQUEST, answer) for answer in ([], [3] * 7, [3] * 8, [3, 9], [9, 3])]

    assert ends == [None, None, Reason.LENGTH, Reason.STOP, None]
