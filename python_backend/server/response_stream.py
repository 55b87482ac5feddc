"""Answers on their way out: one ResponseStream per request, one sender thread for all.

Owns "FINAL exactly once": a response after FINAL can crash the server, a missing one hangs the client and
blocks shutdown. Only the sender thread touches response senders (a thread per request ruins the time to the
first token); it also asks every `cancel_poll_s` whether a client has gone, never per token, and less often
when asking takes long. Must never decide what an answer says.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from python_backend.loops.base import Finish, Piece
from python_backend.server.outputs import Arrays, Shape, error_text, joined
from router_backend.core.effects import Reason
from router_backend.core.errors import RouterError

LOG = logging.getLogger(__name__)
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Our own mistakes, as Python shows them. They end one request, never a thread that serves all, and a
client never sees their traceback."""
INTERNAL = RouterError("an internal error ended this request; the server's log tells more")
KEEPALIVE_S = 1.0
"""Silence after which an ensemble's stream gets an empty response, so that a cancelled client is noticed."""
LOOKS = 8
"""Clients that are asked after in a row; responses wait meanwhile."""
LOOKING_SHARE = 0.1
"""Of the sender's time. A question is a round trip to the server's process, 50 us on an idle machine and 1 ms
on a busy one, where 64 clients each 0.1 s would leave no time to send."""


class SendFailedError(RouterError):
    """Triton did not take a response."""

    code = "TR_SEND"


class ClientWire(Protocol):
    """One request's way back to its client (`python_backend.server.wire`)."""

    def send(self, arrays: Arrays, is_last: bool) -> None:
        """SendFailedError when Triton cannot take it."""
        ...

    def fail(self, code: str, message: str) -> None: ...

    def close(self) -> None: ...

    def is_cancelled(self) -> bool: ...


def gathered(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces up to the end as one; an error at the end stays apart, so that it cannot take text with it."""
    ends = [index for index, piece in enumerate(pieces) if piece.finish is not None]
    until = ends[0] + 1 if ends else len(pieces)
    last = pieces[until - 1 : until]
    if ends and last[0].finish is not None and last[0].finish.reason is Reason.ERROR:
        before = pieces[: until - 1]
        return [*([joined(before)] if before else []), *last]
    return [joined(pieces[:until])] if pieces else []


def refusal(error: RouterError) -> Piece:
    return Piece(finish=Finish(Reason.ERROR, code=error.code, message=str(error)))


class ResponseStream:
    """The ResponsePort of one request. `put` from anywhere, the rest on the sender thread."""

    def __init__(self, wire: ClientWire, sender: Sender) -> None:
        self._wire = wire
        self._sender = sender
        self._shape: Shape | None = None
        self._held: list[Piece] = []
        self._lock = threading.Lock()
        self._waiting: list[Piece] = []
        self._is_ending_empty = False
        self._has_sent = False
        self._sent_at = sender.now()
        self.is_closed = False
        self.is_cancel_told = False
        self.handle: object | None = None
        """What the service calls this request; None until it was submitted."""
        self.on_close: Callable[[], None] = lambda: None

    def begin(self, shape: Shape) -> None:
        """Called once, before anything but a refusal is put."""
        self._shape = shape

    def put(self, piece: Piece) -> None:
        with self._lock:
            self._waiting.append(piece)
            is_first = len(self._waiting) == 1
        if is_first:
            self._sender.post(self)

    def put_empty(self) -> None:
        """End the request with a FINAL that says nothing."""
        self._is_ending_empty = True
        self._sender.post(self)

    @property
    def unsent(self) -> int:
        return len(self._waiting)

    @property
    def unsent_bytes(self) -> int:
        """Of text; a response of token ids alone counts nothing."""
        return sum(len(piece.text.encode()) for piece in list(self._waiting))

    def deliver(self) -> None:
        """Send what waits, as one response: under load fewer and larger ones, never a longer queue."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        try:
            for piece in gathered(waiting):
                self._deliver(piece)
            if self._is_ending_empty and not self.is_closed:
                self._wire.close()
                self._closed()
        except SendFailedError as error:
            LOG.warning("a response was not taken: %s", error)
            self.abandon(error)

    def _deliver(self, piece: Piece) -> None:
        whole = None if self.is_closed else self._whole(piece)
        if whole is not None:
            self._send(whole)
            if whole.finish is not None:
                self._closed()

    def abandon(self, error: RouterError) -> None:
        """Tell the client that its answer ends here, with whatever still gets through."""
        if self.is_closed:
            return
        self._closed()
        try:
            self._wire.fail(error.code, str(error))
        except SendFailedError:
            LOG.exception("the error did not get through either, closing the request without it")
            self._close_bare()

    def keep_alive(self, now: float) -> None:
        is_silent = self.unsent == 0 and now - self._sent_at >= KEEPALIVE_S
        if self.is_closed or self._shape is None or not is_silent:
            return
        arrays = self._shape.keepalive()
        if arrays is not None:
            self._mark_sent()
            self._wire.send(arrays, is_last=False)

    def is_cancelled(self) -> bool:
        """Has the client gone (asked of Triton: about 50 us)."""
        return not self.is_closed and self._wire.is_cancelled()

    def _close_bare(self) -> None:
        try:
            self._wire.close()
        except SendFailedError:
            LOG.exception("a request could not be closed: its client may wait for ever")

    def _whole(self, piece: Piece) -> Piece | None:
        """What to send now: without streaming nothing before the end, then everything as one."""
        if self._shape is None or self._shape.asked.ask.is_streaming:
            return piece
        self._held.append(piece)
        return joined(self._held) if piece.finish is not None else None

    def _send(self, piece: Piece) -> None:
        finish = piece.finish
        if finish is not None and self._must_fail(finish):
            self._wire.fail(finish.code, error_text(finish))
        else:
            assert self._shape is not None, piece
            self._wire.send(self._shape.arrays(piece), is_last=finish is not None)
        self._mark_sent()

    def _must_fail(self, finish: Finish) -> bool:
        """An ensemble that saw a response already must not see an error: it would never finish."""
        is_data = self._shape is not None and self._shape.is_driven and self._has_sent
        return finish.reason is Reason.ERROR and not is_data

    def _mark_sent(self) -> None:
        self._has_sent = True
        self._sent_at = self._sender.now()

    def _closed(self) -> None:
        self.is_closed = True
        self._held.clear()
        self._sender.forget(self)
        self.on_close()


class Sender:
    """The thread that sends for every stream and notices clients that have gone."""

    def __init__(
        self,
        cancel_poll_s: float,
        on_cancel: Callable[[ResponseStream], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._poll_s = cancel_poll_s
        self._on_cancel = on_cancel
        self.now = clock
        self._jobs: queue.SimpleQueue[ResponseStream | None] = queue.SimpleQueue()
        self._open: dict[int, ResponseStream] = {}
        self._round: deque[ResponseStream] = deque()
        """Who has still to be asked after before everybody is again."""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, error: RouterError) -> None:
        """Send what is queued, then end every open stream with `error`."""
        self._jobs.put(None)
        self._thread.join()
        for stream in self.streams():
            stream.abandon(error)

    def open(self, wire: ClientWire) -> ResponseStream:
        stream = ResponseStream(wire, self)
        with self._lock:
            self._open[id(stream)] = stream
        return stream

    def streams(self) -> list[ResponseStream]:
        """Streams without their FINAL, oldest first."""
        with self._lock:
            return list(self._open.values())

    def post(self, stream: ResponseStream) -> None:
        """`stream` has something to deliver."""
        self._jobs.put(stream)

    def forget(self, stream: ResponseStream) -> None:
        with self._lock:
            self._open.pop(id(stream), None)

    def _run(self) -> None:
        poll_at = self.now() + self._poll_s
        while True:
            try:
                stream = self._jobs.get(timeout=max(0.0, poll_at - self.now()))
            except queue.Empty:
                pass
            else:
                if stream is None:
                    return
                self._guarded(stream, stream.deliver)
            if self.now() >= poll_at:
                poll_at = self.poll()

    def poll(self) -> float:
        """Look at the next few open streams: has the client gone, does an ensemble need a sign. When next."""
        began_at, streams = self.now(), self.streams()
        self._round = deque(one for one in self._round if not one.is_closed) or deque(streams)
        for _ in range(min(LOOKS, len(self._round))):
            stream = self._round.popleft()
            self._guarded(stream, partial(self._look, stream))
        polls_per_round = max(1, -(-len(streams) // LOOKS))
        ended_at = self.now()
        return ended_at + max(self._poll_s / polls_per_round, (ended_at - began_at) / LOOKING_SHARE)

    def _look(self, stream: ResponseStream) -> None:
        if stream.handle is not None and not stream.is_cancel_told and stream.is_cancelled():
            stream.is_cancel_told = True
            self._on_cancel(stream)
        stream.keep_alive(self.now())

    def _guarded(self, stream: ResponseStream, act: Callable[[], None]) -> None:
        try:
            act()
        except (*FAULTS, RouterError):
            LOG.exception("sending failed")
            stream.abandon(INTERNAL)
