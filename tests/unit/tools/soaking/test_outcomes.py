"""Every way in which a request can end has one name, and each request is counted once."""

from __future__ import annotations

import pytest

from tools.soaking.asking import Heard
from tools.soaking.outcomes import KEPT, Failure, Fate, Outcome, Tally, judged
from tools.soaking.work import Asked, Way

RIGHT = "95 03 90"
LOST = "[StatusCode.UNAVAILABLE] TR_PEER_LOST: large is gone"
ASKED = Asked(7, 0, "ensemble", Way.GRPC_STREAM, None)


def heard(text: str = RIGHT, ends: int = 1, **also: object) -> Heard:
    return Heard(text, ends, **{"asked_at": 101.0, "ended_at": 103.0, **also})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (heard(), Outcome(Fate.RIGHT)),
        (heard("95 03"), Outcome(Fate.WRONG, "a part of the text")),
        (heard("95 04 90"), Outcome(Fate.WRONG, "another text")),
        (heard(RIGHT + " 53"), Outcome(Fate.WRONG, "another text")),
        (heard("95 ", error=LOST), Outcome(Fate.TOLD, "TR_PEER_LOST")),
        (heard("96 ", error=LOST), Outcome(Fate.WRONG, "another text")),
        (heard("", error="in ensemble, it failed"), Outcome(Fate.WRONG, "no code: in ensemble, it failed")),
        (heard("95 ", 0, has_left=True), Outcome(Fate.CANCELLED)),
        (heard("96 ", 0, has_left=True), Outcome(Fate.WRONG, "another text")),
        (heard("95 ", 0, is_silent=True), Outcome(Fate.WITHOUT_END, "3 of 8 characters")),
        (heard("95 ", 0, error="connection: cut"), Outcome(Fate.WITHOUT_END, "0 ends: connection: cut")),
        (heard(RIGHT, 2), Outcome(Fate.TWICE, "2 ends: ")),
    ],
)
def test_a_request_has_one_fate(found: Heard, expected: Outcome) -> None:
    assert judged(found, RIGHT) == expected


def test_requests_are_counted_by_door_and_way() -> None:
    tally = Tally(100.0)
    tally.count(ASKED, heard(), RIGHT)
    tally.count(ASKED, heard("95 ", error=LOST), RIGHT)
    tally.count(Asked(8, 0, "token_router", Way.HTTP_WHOLE, 0.5), heard("", 0, has_left=True), RIGHT)

    assert tally.by_way == {
        "ensemble, grpc stream": {Fate.RIGHT: 1, Fate.TOLD: 1},
        "token_router, http whole": {Fate.CANCELLED: 1},
    }
    assert (tally.requests, tally.total(Fate.RIGHT), tally.total(Fate.WRONG)) == (3, 1, 0)
    assert tally.failures == [Failure(1.0, 3.0, "TR_PEER_LOST")]
    assert tally.wrong == []


def test_what_is_known_of_the_first_wrong_requests_is_kept() -> None:
    tally = Tally(100.0)
    for _ in range(KEPT + 5):
        tally.count(ASKED, heard("1"), RIGHT)

    first = tally.wrong[0]
    assert (tally.total(Fate.WRONG), len(tally.wrong)) == (KEPT + 5, KEPT)
    assert (first.asked, first.why, first.asked_s, first.text, first.expected) == (
        ASKED,
        "another text",
        1.0,
        "1",
        RIGHT,
    )
