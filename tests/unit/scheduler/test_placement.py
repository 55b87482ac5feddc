"""Which replica of a model gets a request, and who knows it."""

from __future__ import annotations

import pytest

from router_backend.core.errors import RemoteProtocolError
from router_backend.core.replicas import NOWHERE, ReplicaIndex, Replicas
from router_backend.core.request import ModelIndex, Request, RequestId, RequestKey
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff
from router_backend.scheduler.placement import Placement

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
FIRST, LARGE_1, LARGE_2 = map(ReplicaIndex, (0, 1, 2))


def placement(own: ReplicaIndex = FIRST, counts: tuple[int, ...] = (1, 2)) -> Placement:
    return Placement(Replicas(counts), own)


def sequence(name: str, of: Placement) -> Sequence:
    found = Sequence(Request(RequestId(name), (1, 2), 9), SMALL, 1, [1, 2], [2, 0])
    found.places = of.begun_here()
    return found


def test_where_there_is_one_of_each_nothing_is_kept() -> None:
    plain = placement(counts=(1, 1))
    held = sequence("a", plain)
    assert plain.settle(held, LARGE, {LARGE_1}) == LARGE_1
    plain.note(held.key, LARGE_1)
    assert (held.places, plain.load, plain.elsewhere) == ((), (0, 0), 0)


def test_newcomers_go_where_fewest_are_and_stay_there() -> None:
    found = placement()
    held = [sequence(f"r{index}", found) for index in range(9)]
    chosen = [found.settle(one, LARGE, ()) for one in held]
    assert sorted(found.load[1:]) == [4, 5]
    assert [found.settle(one, LARGE, {LARGE_1, LARGE_2}) for one in held] == chosen
    assert [one.places for one in held] == [(FIRST, place) for place in chosen]

    for one in held:
        found.forget(one.key)
    assert found.load == (0, 0, 0)


def test_a_replica_that_is_down_gets_nobody_and_with_all_down_none_is_settled() -> None:
    found = placement()
    held = sequence("a", found)
    assert found.settle(held, LARGE, {LARGE_1, LARGE_2}) in (LARGE_1, LARGE_2)
    assert held.places == (FIRST, NOWHERE)
    assert found.settle(held, LARGE, {LARGE_1}) == LARGE_2


def test_what_a_sibling_holds_does_not_come_here() -> None:
    found = placement(own=LARGE_1)
    for name, holder in (("a", LARGE_1), ("b", LARGE_2), ("c", LARGE_2), ("c", LARGE_2)):
        found.note(RequestKey(RequestId(name), 0), holder)
    assert (found.elsewhere, found.load) == (2, (0, 1, 2))
    found.forget(RequestKey(RequestId("c"), 0))
    found.forget(RequestKey(RequestId("nobody"), 0))
    assert (found.elsewhere, found.has_siblings) == (1, True)


@pytest.mark.parametrize(
    "places", [(), (0,), (0, 2), (-1, 1), (1, 1), (0, 7), (0, -5), (0, 1, 1)], ids=str
)
def test_a_hand_off_from_nowhere_or_for_another_replica_is_refused(places: tuple[int, ...]) -> None:
    handoff = Handoff(RequestId("a"), 0, SMALL, LARGE, 0, 0, (1, 2), (2, 2))
    found = placement(own=LARGE_1)
    found.check(handoff.replaced(places=(FIRST, LARGE_1)))
    assert found.sender(handoff.replaced(places=(FIRST, LARGE_1))) == FIRST
    with pytest.raises(RemoteProtocolError, match="a hand-off to subserver 1 of a request that is at"):
        found.check(handoff.replaced(places=tuple(map(ReplicaIndex, places))))
