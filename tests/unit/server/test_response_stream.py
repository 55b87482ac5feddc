"""FINAL exactly once, from one thread, whatever happens."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from python_backend.loops.base import Ask, Finish, Piece
from python_backend.server.outputs import Arrays, RouterShape, TextShape
from python_backend.server.response_stream import (
    INTERNAL,
    KEEPALIVE_S,
    ResponseStream,
    Sender,
    SendFailedError,
    refusal,
)
from python_backend.server.tensors import Asked
from router_backend.core.effects import Reason
from router_backend.core.errors import CapacityError, RequestError

WORD = Piece(text="a", token_ids=(1,))
END = Piece(text="b", finish=Finish(Reason.STOP))
BROKEN = Piece(finish=Finish(Reason.ERROR, code="TR_PEER_LOST", message="gone"))
STREAMING = Asked(Ask(is_streaming=True), uid=3)
WHOLE = Asked(Ask(), uid=3)


@dataclass
class FakeWire:
    """Records what the client gets; the next `failing` calls fail."""

    got: list[Any] = field(default_factory=list)
    failing: int = 0
    cancelled: bool = False
    threads: set[str] = field(default_factory=set)

    def send(self, arrays: Arrays, is_last: bool) -> None:
        text = arrays.get("text_output", arrays.get("text"))
        assert text is not None
        self._take((text.flat[0].decode(), is_last))

    def fail(self, code: str, message: str) -> None:
        self._take((code, message))

    def close(self) -> None:
        self._take("closed")

    def is_cancelled(self) -> bool:
        return self.cancelled

    def _take(self, item: Any) -> None:
        self.threads.add(threading.current_thread().name)
        if self.failing:
            self.failing -= 1
            raise SendFailedError("no room")
        self.got.append(item)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class SlowWire(FakeWire):
    """The server takes 5 ms to say whether a client is there."""

    clock: Clock = field(default_factory=Clock)

    def is_cancelled(self) -> bool:
        self.clock.now += 0.005
        return self.cancelled


@dataclass
class Bench:
    """A sender whose thread does not run: pieces are delivered by hand."""

    clock: Clock = field(default_factory=Clock)
    wire: FakeWire = field(default_factory=FakeWire)
    cancelled: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sender = Sender(0.1, lambda stream: self.cancelled.append(stream.handle), self.clock)

    def stream(self, shape: TextShape | RouterShape | None) -> ResponseStream:
        stream = self.sender.open(self.wire)
        if shape is not None:
            stream.begin(shape)
        return stream


def feed(stream: ResponseStream, *pieces: Piece) -> None:
    """Each piece finds the sender idle."""
    for piece in pieces:
        stream.put(piece)
        stream.deliver()


def test_pieces_leave_as_they_come_and_the_last_carries_final() -> None:
    bench = Bench()
    stream = bench.stream(TextShape(STREAMING))
    feed(stream, WORD, WORD, END)
    assert bench.wire.got == [("a", False), ("a", False), ("b", True)]
    assert (stream.is_closed, bench.sender.streams()) == (True, [])


def test_what_comes_after_the_end_is_dropped() -> None:
    bench = Bench()
    stream = bench.stream(TextShape(STREAMING))
    feed(stream, END, END, WORD, BROKEN)
    stream.put_empty()
    stream.deliver()
    stream.abandon(INTERNAL)
    assert bench.wire.got == [("b", True)]


def test_without_streaming_everything_leaves_as_one() -> None:
    bench = Bench()
    stream = bench.stream(TextShape(WHOLE))
    feed(stream, WORD, WORD, END)
    assert bench.wire.got == [("aab", True)]


def test_a_refusal_needs_no_shape() -> None:
    bench = Bench()
    feed(bench.stream(None), refusal(RequestError("max_tokens: 0")))
    code = "TR_INVALID_ARGUMENT"
    assert bench.wire.got == [(code, f"{code}: max_tokens: 0")]


def test_an_empty_end_is_final_alone() -> None:
    bench = Bench()
    stream = bench.stream(None)
    stream.put_empty()
    stream.deliver()
    assert bench.wire.got == ["closed"]


@pytest.mark.parametrize(
    ("shape", "before", "expected"),
    [
        (TextShape(STREAMING), [], ("TR_PEER_LOST", "TR_PEER_LOST: gone")),
        (TextShape(STREAMING), [WORD], ("TR_PEER_LOST", "TR_PEER_LOST: gone")),
        (RouterShape(STREAMING), [], ("TR_PEER_LOST", "TR_PEER_LOST: gone")),
        (RouterShape(STREAMING), [WORD], ("", True)),
        (RouterShape(WHOLE), [WORD], ("TR_PEER_LOST", "TR_PEER_LOST: gone")),
        (RouterShape(Asked(Ask(is_streaming=True))), [WORD], ("TR_PEER_LOST", "TR_PEER_LOST: gone")),
    ],
)
def test_an_error_is_data_only_where_an_ensemble_has_seen_a_response(
    shape: TextShape | RouterShape, before: list[Piece], expected: Any
) -> None:
    bench = Bench()
    stream = bench.stream(shape)
    feed(stream, *before, BROKEN)
    assert bench.wire.got[-1] == expected


def test_a_send_that_fails_becomes_an_error_and_the_end() -> None:
    bench = Bench(wire=FakeWire(failing=1))
    stream = bench.stream(TextShape(STREAMING))
    feed(stream, WORD, WORD, END)
    assert bench.wire.got == [("TR_SEND", "TR_SEND: no room")]


def test_when_the_error_does_not_get_through_either_the_request_is_closed() -> None:
    for pieces in ((WORD, END), (END,)):
        bench = Bench(wire=FakeWire(failing=2))
        stream = bench.stream(TextShape(STREAMING))
        feed(stream, *pieces)
        assert bench.wire.got == ["closed"]


def test_a_request_that_cannot_even_be_closed_is_logged_and_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(wire=FakeWire(failing=3))
    feed(bench.stream(TextShape(STREAMING)), WORD)
    assert (bench.wire.got, bench.sender.streams()) == ([], [])
    assert "a request could not be closed" in caplog.text


def test_a_keepalive_that_fails_ends_its_stream() -> None:
    bench = Bench(wire=FakeWire(failing=1))
    bench.stream(RouterShape(STREAMING))
    bench.clock.now += KEEPALIVE_S
    bench.sender.poll()
    assert bench.wire.got == [("TR_ERROR", str(INTERNAL))]


def test_unsent_counts_what_was_put_and_not_yet_taken() -> None:
    bench = Bench()
    stream = bench.stream(TextShape(STREAMING))
    stream.put(WORD)
    stream.put(WORD)
    assert stream.unsent == 2
    stream.deliver()
    assert (stream.unsent, bench.wire.got) == (0, [("aa", False)])


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((WORD, WORD, END, WORD, END), [("aab", True)]),
        ((WORD, BROKEN), [("a", False), ("TR_PEER_LOST", "TR_PEER_LOST: gone")]),
        ((BROKEN, WORD), [("TR_PEER_LOST", "TR_PEER_LOST: gone")]),
    ],
)
def test_what_waits_leaves_as_one_and_an_error_takes_no_text_with_it(
    pieces: tuple[Piece, ...], expected: list[Any]
) -> None:
    bench = Bench()
    stream = bench.stream(TextShape(STREAMING))
    for piece in pieces:
        stream.put(piece)
    stream.deliver()
    assert bench.wire.got == expected


def test_a_client_that_has_gone_is_told_once_and_only_once_it_has_a_handle() -> None:
    bench = Bench(wire=FakeWire(cancelled=True))
    stream = bench.stream(TextShape(STREAMING))
    bench.sender.poll()
    assert bench.cancelled == []
    stream.handle = "request"
    bench.sender.poll()
    bench.sender.poll()
    assert bench.cancelled == ["request"]


def test_many_clients_are_asked_after_a_few_at_a_time_and_all_of_them_in_a_round() -> None:
    bench = Bench(wire=FakeWire(cancelled=True))
    for number in range(20):
        bench.stream(TextShape(STREAMING)).handle = number
    seen = []
    for _ in range(3):
        assert bench.sender.poll() == pytest.approx(bench.clock.now + 0.1 / 3)
        seen.append(len(bench.cancelled))

    assert (seen, bench.cancelled) == ([8, 16, 20], [*range(20)])


def test_who_has_ended_delays_nobody_who_is_new() -> None:
    bench = Bench(wire=FakeWire(cancelled=True))
    early = [bench.stream(TextShape(STREAMING)) for _ in range(30)]
    bench.sender.poll()
    for stream in early:
        feed(stream, END)
    bench.stream(TextShape(STREAMING)).handle = "late"
    bench.sender.poll()

    assert bench.cancelled == ["late"]


def test_asking_after_clients_takes_a_tenth_of_the_time_however_long_an_answer_takes() -> None:
    clock = Clock()
    bench = Bench(clock=clock, wire=SlowWire(clock=clock))
    for number in range(8):
        bench.stream(TextShape(STREAMING)).handle = number
    began_at = clock.now

    assert bench.sender.poll() - began_at == pytest.approx(8 * 0.005 * 11)


def test_a_silent_ensemble_gets_an_empty_response_now_and_then() -> None:
    bench = Bench()
    stream = bench.stream(RouterShape(STREAMING))
    stream.handle = 1
    bench.sender.poll()
    assert bench.wire.got == []
    for _ in range(2):
        bench.clock.now += KEEPALIVE_S
        bench.sender.poll()
        bench.sender.poll()
    assert bench.wire.got == [("", False), ("", False)]
    feed(stream, WORD)
    bench.clock.now += KEEPALIVE_S / 2
    bench.sender.poll()
    assert bench.wire.got == [("", False), ("", False), ("a", False)]


def test_an_ensemble_whose_text_waits_to_be_sent_is_not_silent() -> None:
    bench = Bench()
    bench.stream(RouterShape(STREAMING)).put(WORD)
    bench.clock.now += KEEPALIVE_S
    bench.sender.poll()
    assert bench.wire.got == []


def test_nobody_else_is_kept_alive() -> None:
    bench = Bench()
    for shape in (TextShape(STREAMING), RouterShape(WHOLE), None):
        bench.stream(shape)
    bench.clock.now += 10 * KEEPALIVE_S
    bench.sender.poll()
    assert bench.wire.got == []


def test_one_thread_sends_for_all_and_one_streams_fault_ends_that_stream_only() -> None:
    sender = Sender(0.01, lambda stream: None)
    sender.start()
    wires = [FakeWire() for _ in range(3)]
    streams = [sender.open(wire) for wire in wires]
    ended = [threading.Event() for _ in streams]
    for stream, event in zip(streams, ended, strict=True):
        stream.begin(TextShape(STREAMING))
        stream.on_close = event.set
    streams[0].put(Piece(text=None))  # type: ignore[arg-type]
    for stream in streams[1:]:
        stream.put(WORD)
        stream.put(END)
    assert all(event.wait(5) for event in ended)
    sender.stop(CapacityError("over"))
    assert wires[0].got == [("TR_ERROR", str(INTERNAL))]
    for wire in wires[1:]:
        assert ("".join(text for text, _ in wire.got), wire.got[-1][1]) == ("ab", True)
    assert {name for wire in wires for name in wire.threads} == {"sender"}


def test_stop_sends_what_waits_and_ends_what_is_open() -> None:
    sender = Sender(0.01, lambda stream: None)
    wire, other = FakeWire(), FakeWire()
    stream = sender.open(wire)
    stream.begin(TextShape(STREAMING))
    sender.open(other)
    stream.put(WORD)
    sender.start()
    sender.stop(CapacityError("over"))
    ending = ("TR_CAPACITY", "TR_CAPACITY: over")
    assert (wire.got, other.got) == ([("a", False), ending], [ending])
