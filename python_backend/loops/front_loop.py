"""The front's loop: clients on one side, subservers on the other, one thread that decides.

Clients come in from Triton's threads through `submit` and `cancel`, which return at once. Runs no
model code and never waits for a client. Invariant: every request that was submitted gets exactly one
piece with a finish, also when a subserver dies or the loop itself stops.
"""

from __future__ import annotations

import itertools
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import NamedTuple

from python_backend.config import Deployment
from python_backend.loops.base import Ask, Finish, Piece, ResponsePort
from python_backend.loops.front_counts import FrontCounts, FrontSnapshot
from python_backend.loops.front_desk import FrontDesk
from python_backend.loops.front_peers import FrontPeers
from python_backend.loops.open_request import explained
from python_backend.loops.request_door import RequestDoor, Ticket
from python_backend.loops.stopwatch import Stopwatch
from python_backend.loops.story import Story
from python_backend.text.base import TextCodec
from python_backend.transport.base import Frames, HandoffTransport
from router_backend.core.effects import Close, Emit, Reason
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import RequestId, RequestKey
from router_backend.handoff.codec import Message, messages_of, unpack
from router_backend.handoff.message import Beat
from router_backend.stream.admission import DrainingError

TICK_S = 0.05
"""Between two looks at deadlines and peers. Text that waits has times of its own."""


@dataclass(frozen=True, slots=True)
class FrontParts:
    """What a front loop is built from."""

    deployment: Deployment
    endpoint: str
    instance: int
    """Drawn at process start, so that subservers see a restart."""
    door: RequestDoor
    text: TextCodec
    readers: Executor
    """Runs the door, one ask at a time, because a long prompt takes long to turn into tokens."""


class Asked(NamedTuple):
    request_id: RequestId
    ask: Ask
    port: ResponsePort


class Cancelled(NamedTuple):
    request_id: RequestId


class Read(NamedTuple):
    """The door is done with an ask."""

    request_id: RequestId
    result: Future[Ticket]


class Stop(NamedTuple):
    within_s: float


FrontEvent = Asked | Cancelled | Read | Stop


class FrontLoop:
    """`clock` is monotonic seconds. `turn` and `run` belong to one thread, the other methods to any."""

    def __init__(self, parts: FrontParts, transport: HandoffTransport, clock: Callable[[], float]) -> None:
        settings = parts.deployment.front
        now = clock()
        self._parts = parts
        self._transport = transport
        self._clock = clock
        self._counts = FrontCounts(len(parts.deployment.models))
        self._peers = FrontPeers(parts.deployment, transport, now)
        self._desk = FrontDesk(parts.deployment, self._peers, self._counts, parts.text)
        watch = Stopwatch(clock)
        self._desk.timed = watch.text
        self._counts.include("detokenize_seconds", watch.spread)
        self._beat = Beat(parts.endpoint, parts.instance)
        self._beat_s = settings.heartbeat_ms / 1000.0
        self._beat_at = self._tick_at = now
        self._stop_at: float | None = None
        # Counted on from a number that differs from process to process: no epoch is given twice.
        self._epochs = itertools.count(parts.instance)
        self._events: deque[FrontEvent] = deque()
        self._gate = Lock()
        self._is_stopped = False
        self._snapshot = self._counts.snapshot(self._desk.gauges())

    def trace(self, tell: Callable[[Story, Finish], None]) -> None:
        """Before `run`: `tell` is told the course of every request once it has ended."""
        self._desk.tell = tell

    def submit(self, ask: Ask, port: ResponsePort) -> RequestId:
        """Take over a client; its answer goes to `port`. Returns the id that `cancel` wants."""
        request_id = RequestId(uuid.uuid4().hex)
        if not self._note(Asked(request_id, ask, port)):
            _turn_away(port)
        return request_id

    def cancel(self, request_id: RequestId) -> None:
        """The client is gone; idempotent, and harmless when the request has ended."""
        self._note(Cancelled(request_id))

    def stop(self, within_s: float) -> None:
        """Take no more requests, and end the open ones within this time."""
        self._note(Stop(within_s))

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    @property
    def wakes_at(self) -> float:
        """When the next turn begins if nothing happens before."""
        return min(self._tick_at, self._desk.flush_times.next_at)

    def snapshot(self) -> FrontSnapshot:
        """How things stood at the last heartbeat."""
        return self._snapshot

    def run(self) -> None:
        """Turn until stopped. Should a turn fail, every client is told before the error goes on."""
        try:
            while not self._is_stopped:
                self.turn(max(0.0, self.wakes_at - self._clock()))
        finally:
            self._shut()

    def turn(self, timeout_s: float) -> None:
        """Wait for something to happen, at most `timeout_s`, and act on it."""
        letters = self._transport.poll(timeout_s)
        now = self._clock()
        while self._events:
            self._on_event(self._events.popleft(), now)
        for _, letter in letters:
            self._on_letter(letter, now)
        if now >= self._tick_at:
            self._on_tick(now)
        self._desk.flush(now)
        self._desk.start_queued(now)
        for abort in self._desk.take_aborts():
            self._peers.tell_all(abort, now)

    def _note(self, event: FrontEvent) -> bool:
        """False when nobody will look at events any more."""
        with self._gate:
            if self._is_stopped:
                return False
            self._events.append(event)
            self._transport.wake()
        return True

    def _on_event(self, event: FrontEvent, now: float) -> None:
        match event:
            case Asked():
                if self._desk.open(event.request_id, event.ask, event.port, now):
                    self._read(event)
            case Read():
                self._desk.on_read(event.request_id, event.result, now)
            case Cancelled():
                cause = ("TR_CANCELLED", "the client cancelled")
                self._desk.end(event.request_id, Reason.CANCELLED, cause, now)
            case Stop():
                self._desk.is_draining = True
                self._stop_at = now + event.within_s

    def _read(self, event: Asked) -> None:
        beats = self._peers.beats()
        key = RequestKey(event.request_id, next(self._epochs))
        job = self._parts.readers.submit(self._parts.door.admit, event.ask, key, beats)
        job.add_done_callback(partial(self._on_job_done, event.request_id))

    def _on_job_done(self, request_id: RequestId, job: Future[Ticket]) -> None:
        self._note(Read(request_id, job))

    def _on_letter(self, letter: Frames, now: float) -> None:
        """What one step of a subserver committed comes together."""
        for frames in messages_of(letter):
            try:
                message = unpack(frames)
            except RemoteProtocolError:
                self._counts.bad_messages += 1
            else:
                self._on_message(message, now)

    def _on_message(self, message: Message, now: float) -> None:
        match message:
            case Emit():
                self._desk.on_emit(message, now)
            case Close():
                self._desk.on_close(message, now)
            case Beat():
                for model in self._peers.hear(message, now):
                    self._desk.on_lost(model, now)
            case _:
                self._counts.bad_messages += 1

    def _on_tick(self, now: float) -> None:
        self._counts.observe_loop(now - self._tick_at)
        self._tick_at = now + TICK_S
        for model in self._peers.lost(now):
            self._desk.on_lost(model, now)
        self._desk.on_tick(now)
        self._peers.retry()
        if now >= self._beat_at:
            self._beat_at = now + self._beat_s
            self._peers.beat(self._beat)
            self._snapshot = self._counts.snapshot(self._desk.gauges())
        if self._stop_at is not None and (not len(self._desk) or now >= self._stop_at):
            self._shut()

    def _shut(self) -> None:
        """Nothing that comes later is lost: it is refused by `submit` itself."""
        with self._gate:
            self._is_stopped = True
        self._desk.end_all(("TR_SHUTDOWN", "the server is shutting down"), self._clock())
        while self._events:
            event = self._events.popleft()
            if isinstance(event, Asked):
                _turn_away(event.port)
        self._snapshot = self._counts.snapshot(self._desk.gauges())


def _turn_away(port: ResponsePort) -> None:
    error = DrainingError("the server has shut down: send the request to another one")
    port.put(Piece(finish=Finish(Reason.ERROR, *explained(error))))
