"""Words that are said again to a peer that was away."""

from __future__ import annotations

from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff import farewells
from router_backend.handoff.farewells import MARGIN_S, Farewells
from router_backend.handoff.message import Finished


def end(name: str) -> Finished:
    return Finished(RequestId(name), 0, ModelIndex(0))


def test_what_was_said_since_a_peer_was_heard_is_said_again_once() -> None:
    said = Farewells()
    said.note("large", end("a"), heard_at=10.0, now=10.0)
    said.note("large", end("b"), heard_at=10.0, now=20.0)
    said.note("small", end("c"), heard_at=20.0, now=20.0)

    assert (said.again("large"), said.again("large"), said.again("front")) == ([end("a"), end("b")], [], [])
    assert said.again("small") == [end("c")]


def test_what_a_peer_has_heard_for_certain_is_forgotten() -> None:
    said = Farewells()
    for second in range(100):
        said.note("large", end(str(second)), heard_at=float(second), now=float(second))

    assert said.again("large") == [end(str(second)) for second in range(99 - int(MARGIN_S), 100)]


def test_memory_is_bounded() -> None:
    said = Farewells()
    for number in range(farewells.SIZE_MAX + 5):
        said.note("large", end(str(number)), heard_at=0.0, now=1.0)

    assert len(said.again("large")) == farewells.SIZE_MAX
