"""The client loop of a subserver: its own token-level door.

A client that names a subserver instead of the router gives token ids and gets token ids of this
model alone: the baseline, and the way to look at one model. Owns those clients' ports. Must never
run the model or look at text. The invariant: every ask that was accepted gets exactly one `Finish`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from python_backend.loops.base import Ask, Finish, Piece, ResponsePort, TokenReport, reports
from python_backend.loops.decode_loop import BROKEN, UNLOADED, DecodeEvent
from python_backend.loops.inbox import Inbox
from python_backend.loops.loop_figures import Lag
from python_backend.loops.token_request import TokenDoor, timeout_s, to_request
from router_backend.core.effects import Close, Emit, Reason, Usage
from router_backend.core.errors import CapacityError, PeerLostError
from router_backend.core.request import Request, RequestId
from router_backend.handoff.message import Abort, Admit


@dataclass(slots=True)
class _Client:
    port: ResponsePort
    request: Request
    is_streaming: bool
    deadline: float
    asked_at: float = float("-inf")
    token_ids: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    logprobs: list[TokenReport] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Cancel:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class _Fail:
    message: str


_NO_USAGE = Usage()

_Event = _Client | _Cancel | _Fail | Emit | Close


class ClientLoop:
    """`ask`, `cancel`, `deliver` and `fail` from any thread; the rest in `run`'s thread."""

    def __init__(self, door: TokenDoor, decode: Inbox[DecodeEvent], clock: Callable[[], float]) -> None:
        self.lag = Lag()
        self._door = door
        self._decode = decode
        self._clock = clock
        self._inbox: Inbox[_Event] = Inbox(clock=clock)
        self._arrived: Iterator[_Event] = iter(())
        """What this turn has yet to follow."""
        self._clients: dict[RequestId, _Client] = {}
        self._numbers = itertools.count()
        self._closing = threading.Lock()
        """Held while an ask is let in and while the door is shut, so that none slips in unanswered."""
        self._failure = ""
        self._is_stopping = False

    def ask(self, ask: Ask, port: ResponsePort) -> RequestId:
        """Start a request; `port` gets its pieces. The id is for `cancel`.

        Raises RequestError naming the field, CapacityError when too many are open, PeerLostError when
        the model has stopped; `port` stays untouched then.
        """
        if len(self._clients) >= self._door.open_max:
            raise CapacityError(f"{self._door.open_max} requests are open here already: try again later")
        request = to_request(ask, self._door, next(self._numbers))
        now = self._clock()
        deadline = now + timeout_s(ask, self._door)
        with self._closing:
            if self._failure:
                raise PeerLostError(self._failure)
            self._inbox.put(_Client(port, request, ask.is_streaming, deadline, now))
        return request.request_id

    def cancel(self, request_id: RequestId) -> None:
        """The client has gone. Idempotent."""
        self._inbox.put(_Cancel(request_id))

    def deliver(self, effect: Emit | Close) -> None:
        self._inbox.put(effect)

    def fail(self, message: str) -> None:
        """Nobody will answer any more: end every request with an error, refuse new ones."""
        with self._closing:
            self._failure = self._failure or message
            self._inbox.put(_Fail(message))

    def run(self) -> None:
        """Until `stop`; however it ends, nothing stays open."""
        try:
            while not self._is_stopping:
                self.turn()
                self._inbox.wait(self._next_deadline())
        finally:
            self._shut()

    def stop(self) -> None:
        """End `run`; from any thread."""
        self.fail(UNLOADED)
        self._is_stopping = True
        self._inbox.wake()

    def _shut(self) -> None:
        with self._closing:
            self._failure = self._failure or BROKEN
        for event in itertools.chain(self._arrived, self._inbox.drain()):
            if isinstance(event, _Client):
                self._follow(event)
        self._fail_all(self._failure)

    def turn(self) -> None:
        """Follow everything that has arrived, then end what has taken too long."""
        self._arrived = iter(self._inbox.drain())
        for event in self._arrived:
            self._follow(event)
        now = self._clock()
        late = [client for client in self._clients.values() if client.deadline <= now]
        for client in late:
            self._end(client, Reason.ERROR, "TR_DEADLINE", "timeout_s: the request took longer than it may")

    def _follow(self, event: _Event) -> None:
        match event:
            case _Client():
                self.lag.note(event.asked_at, self._clock())
                self._clients[event.request.request_id] = event
                self._decode.put(Admit(event.request))
            case _Fail():
                self._fail_all(event.message)
            case _Cancel():
                client = self._clients.get(event.request_id)
                if client is not None:
                    self._end(client, Reason.CANCELLED, "", "cancelled by the client")
            case Emit():
                self._commit(event)
            case Close():
                self._close(event)

    def _commit(self, emit: Emit) -> None:
        client = self._clients.get(emit.request_id)
        if client is None or client.request.epoch != emit.epoch:
            return
        # One model commits everything and one thread delivers it: nothing to put in order.
        assert emit.position == len(client.token_ids), (emit, len(client.token_ids))
        sources = (int(emit.model),) * len(emit.token_ids)
        client.token_ids += emit.token_ids
        client.sources += sources
        told = reports(emit.token_ids, emit.logprobs)
        client.logprobs += told
        if client.is_streaming:
            client.port.put(Piece(token_ids=emit.token_ids, sources=sources, logprobs=told))

    def _close(self, close: Close) -> None:
        client = self._clients.get(close.request_id)
        if client is None or client.request.epoch != close.epoch:
            return
        del self._clients[close.request_id]
        code, message = split_code(close.message)
        _finish(client, close.reason, code, message, close.usage)

    def _end(self, client: _Client, reason: Reason, code: str, message: str) -> None:
        """End a request that the scheduler has not closed, and tell the scheduler."""
        request = client.request
        del self._clients[request.request_id]
        self._decode.put(Abort(request.request_id, request.epoch))
        _finish(client, reason, code, message)

    def _fail_all(self, message: str) -> None:
        for client in list(self._clients.values()):
            self._end(client, Reason.ERROR, PeerLostError.code, message)

    def _next_deadline(self) -> float | None:
        return min((client.deadline for client in self._clients.values()), default=None)


def split_code(message: str) -> tuple[str, str]:
    """Machine code and text of an error in a `Close`: "TR_RUNNER: out of memory" has both."""
    code, colon, text = message.partition(": ")
    return (code, text) if colon and code.startswith("TR_") else ("", message)


def _finish(client: _Client, reason: Reason, code: str, message: str, usage: Usage = _NO_USAGE) -> None:
    prompt_tokens, output_tokens = client.request.prompt_len, len(client.token_ids)
    counts = (prompt_tokens, output_tokens, usage.discarded, usage.handoffs)
    finish = Finish(reason, code, message, "", *counts, client.request.sampling.seed)
    if client.is_streaming:
        client.port.put(Piece(prompt_tokens=prompt_tokens, finish=finish))
        return
    told = tuple(client.logprobs)
    client.port.put(
        Piece("", tuple(client.token_ids), tuple(client.sources), prompt_tokens, finish, logprobs=told)
    )
