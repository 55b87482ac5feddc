"""The token-level door: one finish per ask, whatever happens behind it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from python_backend.loops.base import Ask, Finish, Likely, Piece, TokenReport
from python_backend.loops.client_loop import ClientLoop, split_code
from python_backend.loops.decode_loop import BROKEN, UNLOADED, DecodeEvent
from python_backend.loops.inbox import Inbox
from python_backend.loops.token_request import TokenDoor
from python_backend.runner.base import RunnerInfo
from router_backend.core.effects import Close, Emit, Reason, TokenLogprobs, Usage
from router_backend.core.errors import CapacityError, PeerLostError, RequestError
from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff.message import Abort, Admit

INFO = RunnerInfo(vocab_size=100, length_max=64, num_blocks=8, block_size=16, eos_ids=frozenset({99}))
DOOR = TokenDoor("small", 1, INFO, tokens_max=64, open_max=2, timeout_s=10.0)
STREAM = Ask(input_ids=(1, 2, 3), is_streaming=True)
WHOLE = replace(STREAM, is_streaming=False)


@dataclass
class Port:
    pieces: list[Piece] = field(default_factory=list)
    unsent: int = 0

    def put(self, piece: Piece) -> None:
        self.pieces.append(piece)

    @property
    def finishes(self) -> list[Finish]:
        return [piece.finish for piece in self.pieces if piece.finish]


class Subject:
    def __init__(self) -> None:
        self.now = 0.0
        self.decode: Inbox[DecodeEvent] = Inbox()
        self.loop = ClientLoop(DOOR, self.decode, lambda: self.now)

    def started(self, ask: Ask) -> tuple[RequestId, Port]:
        port = Port()
        request_id = self.loop.ask(ask, port)
        self.loop.turn()
        return request_id, port


def emit(request_id: RequestId, position: int, *tokens: int) -> Emit:
    return Emit("small", request_id, 0, position, tokens, ModelIndex(0))


def test_an_ask_becomes_an_admission() -> None:
    subject = Subject()
    request_id, port = subject.started(STREAM)
    (admit,) = subject.decode.drain()

    assert isinstance(admit, Admit)
    assert (admit.request.request_id, admit.request.home, port.pieces) == (request_id, "small", [])


def test_a_stream_gets_a_piece_per_commit_and_a_finish() -> None:
    subject = Subject()
    request_id, port = subject.started(STREAM)
    subject.loop.deliver(emit(request_id, 0, 7))
    subject.loop.deliver(emit(request_id, 1, 8, 9))
    subject.loop.deliver(Close("small", request_id, 0, Reason.LENGTH, 3, usage=Usage(1, 2)))
    subject.loop.turn()

    assert port.pieces == [
        Piece(token_ids=(7,), sources=(0,)),
        Piece(token_ids=(8, 9), sources=(0, 0)),
        Piece(prompt_tokens=3, finish=Finish(Reason.LENGTH, "", "", "", 3, 3, 1, 2, seed=1)),
    ]


def test_log_probabilities_come_with_their_tokens_and_without_spelling() -> None:
    subject = Subject()
    request_id, port = subject.started(replace(WHOLE, logprobs=1))
    told = TokenLogprobs(-0.5, ((8, -0.25),))
    subject.loop.deliver(emit(request_id, 0, 7).replaced(logprobs=(told,)))
    subject.loop.deliver(Close("small", request_id, 0, Reason.STOP, 1))
    subject.loop.turn()

    assert port.pieces[0].logprobs == (TokenReport(Likely(7, -0.5), (Likely(8, -0.25),)),)


def test_without_streaming_everything_comes_in_one_piece() -> None:
    subject = Subject()
    request_id, port = subject.started(WHOLE)
    subject.loop.deliver(emit(request_id, 0, 7))
    subject.loop.deliver(emit(request_id, 1, 8))
    subject.loop.deliver(Close("small", request_id, 0, Reason.STOP, 2))
    subject.loop.turn()

    assert port.pieces == [Piece("", (7, 8), (0, 0), 3, Finish(Reason.STOP, "", "", "", 3, 2, seed=1))]


def test_the_code_of_an_error_is_taken_from_its_message() -> None:
    subject = Subject()
    request_id, port = subject.started(STREAM)
    subject.loop.deliver(Close("small", request_id, 0, Reason.ERROR, 0, "TR_RUNNER: out of memory"))
    subject.loop.turn()

    assert port.finishes == [Finish(Reason.ERROR, "TR_RUNNER", "out of memory", "", 3, 0, seed=1)]
    assert [split_code(text) for text in ("TR_X: a: b", "no code: here", "")] == [
        ("TR_X", "a: b"),
        ("", "no code: here"),
        ("", ""),
    ]


def test_a_cancel_finishes_at_once_frees_the_model_and_is_idempotent() -> None:
    subject = Subject()
    request_id, port = subject.started(STREAM)
    subject.decode.drain()
    subject.loop.cancel(request_id)
    subject.loop.cancel(request_id)
    subject.loop.deliver(emit(request_id, 0, 7))
    subject.loop.deliver(Close("small", request_id, 0, Reason.CANCELLED, 1))
    subject.loop.turn()

    assert subject.decode.drain() == [Abort(request_id, 0)]
    assert port.pieces == [
        Piece("", (), (), 3, Finish(Reason.CANCELLED, "", "cancelled by the client", "", 3, seed=1))
    ]


def test_a_request_that_takes_too_long_ends_with_an_error() -> None:
    subject = Subject()
    request_id, port = subject.started(replace(STREAM, timeout_s=2.0))
    _, patient = subject.started(STREAM)
    subject.decode.drain()
    subject.now = 2.0
    subject.loop.turn()

    assert subject.decode.drain() == [Abort(request_id, 0)]
    assert [finish.code for finish in port.finishes] == ["TR_DEADLINE"]
    assert patient.pieces == []


def test_a_refused_ask_raises_and_leaves_its_port_untouched() -> None:
    subject = Subject()
    port = Port()
    with pytest.raises(RequestError, match=r"max_tokens: 0"):
        subject.loop.ask(replace(STREAM, max_tokens=0), port)
    subject.loop.turn()

    assert (port.pieces, subject.decode.drain()) == ([], [])


def test_more_open_requests_than_allowed_are_refused() -> None:
    subject = Subject()
    subject.started(STREAM)
    subject.started(STREAM)

    with pytest.raises(CapacityError, match=r"2 requests are open here already"):
        subject.loop.ask(STREAM, Port())


def test_a_failure_ends_every_request_and_shuts_the_door() -> None:
    subject = Subject()
    _, first = subject.started(STREAM)
    _, second = subject.started(WHOLE)
    subject.loop.fail(BROKEN)
    subject.loop.turn()

    ended = Finish(Reason.ERROR, "TR_PEER_LOST", BROKEN, "", 3, 0, seed=1)
    assert (first.finishes, second.finishes) == ([ended], [replace(ended, seed=2)])
    with pytest.raises(PeerLostError, match=r"stopped after an internal error"):
        subject.loop.ask(STREAM, Port())


def test_a_stopped_loop_ends_what_it_has_and_what_had_just_come() -> None:
    subject = Subject()
    _, old = subject.started(STREAM)
    new = Port()
    subject.loop.ask(STREAM, new)
    subject.loop.stop()
    subject.loop.run()

    assert [finish.message for finish in old.finishes + new.finishes] == [UNLOADED, UNLOADED]


def test_a_loop_that_breaks_ends_every_request_first() -> None:
    subject = Subject()
    request_id, port = subject.started(STREAM)
    new = Port()
    subject.loop.deliver(emit(request_id, 5, 7))
    subject.loop.ask(STREAM, new)
    with pytest.raises(AssertionError):
        subject.loop.run()

    assert [finish.message for finish in port.finishes + new.finishes] == [BROKEN, BROKEN]
    with pytest.raises(PeerLostError):
        subject.loop.ask(STREAM, Port())
