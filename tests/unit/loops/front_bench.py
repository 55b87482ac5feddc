"""A front loop on a bench: scripted subservers behind a loopback network, and a clock that we turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.loops.base import Ask, Finish, Piece
from python_backend.loops.front_loop import FrontLoop, FrontParts
from python_backend.loops.request_door import Beats, RequestDoor, Ticket
from python_backend.text.base import TextCodec
from python_backend.transport.loopback_transport import LoopbackNetwork
from router_backend.core.effects import Close, Emit, Reason, Usage
from router_backend.core.errors import RouterError
from router_backend.core.request import ModelIndex, Request, RequestId, RequestKey
from router_backend.handoff.codec import Message, pack, unpack
from router_backend.handoff.message import Abort, Admit, Beat
from router_backend.stream.answer import TextSource

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
EOS = 26


class Letters:
    """A codec with one letter a token."""

    vocab_size = 64

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(ord(char) % 32 for char in text)

    def spelling(self, token_id: int) -> bytes:
        return b"%c" % (ord("a") + token_id)

    def spellings(self, text: str) -> tuple[tuple[int, ...], ...]:
        return (self.encode(text), (0, *self.encode(text)))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        return "".join(f"{message['role']}:{message['content']}" for message in messages)

    def decode(self, token_ids: Iterable[int]) -> str:
        return "".join(chr(ord("a") + token_id) for token_id in token_ids)

    def text_source(self) -> TextSource:
        return self

    def step(self, token_id: int) -> str:
        return self.decode([token_id])

    def finish(self) -> str:
        return ""


class Port:
    """A client's end. `unsent` is what the test says."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.unsent = 0

    def put(self, piece: Piece) -> None:
        self.pieces.append(piece)

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def finishes(self) -> list[Finish]:
        return [piece.finish for piece in self.pieces if piece.finish]

    @property
    def finish(self) -> Finish:
        """The one finish, on the last piece."""
        assert len(self.finishes) == 1, self.pieces
        assert self.pieces[-1].finish
        return self.pieces[-1].finish


class Inline(Executor):
    """Runs a job where it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        job: Future[Any] = Future()
        try:
            job.set_result(fn(*args, **kwargs))
        except (RouterError, TypeError, AttributeError) as error:
            job.set_exception(error)
        return job


def _client(life: RequestId) -> RequestId:
    """The id under which a request was admitted first."""
    return RequestId(life.partition(".")[0])


class NotingDoor(RequestDoor):
    """Remembers the life in which each request was admitted."""

    epochs: dict[RequestId, int]

    def admit(self, ask: Ask, key: RequestKey, beats: Beats) -> Ticket:
        self.epochs[key.request_id] = key.epoch
        return super().admit(ask, key, beats)


class Bench:
    """Two scripted subservers, `small` and `large`, and a front whose turns the test makes."""

    def __init__(
        self, text: TextCodec | None = None, on_peer_loss: str = "fail", **front: object
    ) -> None:
        models = [{"name": "small"}, {"name": "large"}]
        settings = {"flush_ms": 0, "queue_max": 2, "live_max": 2, **front}
        given = {"models": models, "front": settings, "on_peer_loss": on_peer_loss, "retry_s": 5.0}
        self.deployment = Deployment.model_validate(given)
        self.now = 100.0
        self.network = LoopbackNetwork()
        self.subservers = {name: self.network.endpoint(name) for name in ("small", "large")}
        codec = text or Letters()
        door = NotingDoor(self.deployment, Agreement(64), codec, "front", lambda: 7)
        door.epochs = self.epochs = {}
        parts = FrontParts(self.deployment, "front", 5, door, codec, Inline())
        self.loop = FrontLoop(parts, self.network.endpoint("front"), lambda: self.now)

    def turn(self, seconds: float = 0.0) -> None:
        """Time passes, then the front does what it has to (reading an ask is an event of its own)."""
        self.now += seconds
        self.loop.turn(0.0)
        self.loop.turn(0.0)

    def send(self, name: str, *messages: Message) -> None:
        """Epoch 0 of a commit or an end stands for the life in which the request is."""
        for message in messages:
            self.send_letter(name, message)

    def send_letter(self, name: str, *messages: Message) -> None:
        """`send`, all in one letter."""
        frames = [frame for message in messages for frame in pack(self._alive(message))]
        assert self.subservers[name].post("front", frames)  # type: ignore[arg-type]

    def _alive(self, message: Message) -> Message:
        if isinstance(message, Emit | Close) and not message.epoch:
            return message.replaced(epoch=self.epochs.get(_client(message.request_id), 0))
        return message

    def beat(self, *names: str, instance: int = 1, **limits: int) -> None:
        """Signs of life, and a turn that sees them."""
        for name in names or ("small", "large"):
            values = {"vocab_size": 60, "length_max": 40, "capacity_tokens": 64, **limits}
            self.send(name, Beat(name, instance, self.deployment.names.index(name), eos_ids=(EOS,), **values))
        self.turn()

    def received(self, name: str) -> list[Message]:
        """What the front told a subserver, without its own beats."""
        messages = [unpack(frames) for _, frames in self.subservers[name].poll(0.0)]
        return [message for message in messages if not isinstance(message, Beat)]

    def admitted(self, name: str = "small") -> list[Request]:
        return [message.request for message in self.received(name) if isinstance(message, Admit)]

    def aborted(self, name: str) -> list[RequestId]:
        return [message.request_id for message in self.received(name) if isinstance(message, Abort)]

    def ask(self, text: str = "hi", **fields: Any) -> tuple[RequestId, Port]:
        port = Port()
        request_id = self.loop.submit(Ask(text=text, is_streaming=True, **fields), port)
        self.turn()
        return request_id, port


def ready_bench(**front: object) -> Bench:
    bench = Bench(**front)  # type: ignore[arg-type]
    bench.beat()
    return bench


def emit(request_id: RequestId, position: int, *tokens: int, model: ModelIndex = SMALL) -> Emit:
    return Emit("front", request_id, 0, position, tokens, model)


def close(request_id: RequestId, length: int, reason: Reason = Reason.LENGTH, message: str = "") -> Close:
    return Close("front", request_id, 0, reason, length, message, Usage(discarded=1, handoffs=2))
