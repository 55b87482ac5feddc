"""The open requests of a front: who waits, who is served, who is told what.

Owned by the front loop's thread and told the time. Must never wait and never read a socket; it posts
nothing but admissions, and leaves the aborts to be collected. Invariant: a request leaves `_open`
exactly when its one piece with a finish is put.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from python_backend.config import Deployment
from python_backend.loops.base import Ask, Finish, Piece, ResponsePort
from python_backend.loops.flush_times import FlushTimes
from python_backend.loops.front_counts import FrontCounts, Gauges
from python_backend.loops.front_peers import FrontPeers
from python_backend.loops.open_request import OpenRequest, explained, terms_of
from python_backend.loops.request_door import Ticket
from python_backend.loops.story import Story
from python_backend.text.base import TextCodec
from router_backend.core.effects import Close, Emit, Reason
from router_backend.core.errors import CapacityError, PeerLostError, RemoteProtocolError, RouterError
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import RequestId
from router_backend.handoff.message import Abort, Admit
from router_backend.stream.admission import AdmissionLimits, Occupancy
from router_backend.stream.answer import Answer, Delivery, TextSource, split_code
from router_backend.stream.lives import GiveUp, Lives, PeerLoss, Start, end_of

_log = logging.getLogger(__name__)

CANCELLED_MAX = 4096
"""Cancelled requests that are remembered, to learn how long it takes the models to end them."""


class FrontDesk:
    """Serves clients; `counts` and `peers` belong to the same thread."""

    def __init__(
        self, deployment: Deployment, peers: FrontPeers, counts: FrontCounts, text: TextCodec
    ) -> None:
        settings = deployment.front
        self.is_draining = False
        self.timed: Callable[[TextSource], TextSource] = lambda text: text
        """What measures the way from tokens to text."""
        self.tell: Callable[[Story, Finish], None] | None = None
        """Who wants to know the course of every request, if anybody does."""
        self._settings = settings
        self._loss = deployment.loss
        self._peers = peers
        self._counts = counts
        self._text = text
        self._limits = AdmissionLimits(settings.live_max, settings.queue_max)
        self._open: dict[RequestId, OpenRequest] = {}
        self._living: dict[RequestId, OpenRequest] = {}
        """By the id under which the subservers know the present life."""
        self.flush_times = FlushTimes()
        self._queue: deque[RequestId] = deque()
        self._live = 0
        self._aborts: list[Abort] = []
        self._cancelled: dict[RequestId, float] = {}
        """Requests that ended here first, and when; until the model that held them says so too."""

    def __len__(self) -> int:
        return len(self._open)

    def gauges(self) -> Gauges:
        unsent, peers = sum(opened.port.unsent for opened in self._open.values()), self._peers
        queued = len(self._open) - self._live
        return Gauges(self._live, queued, unsent, peers.subservers_up(), self.is_draining, peers.up())

    def take_aborts(self) -> list[Abort]:
        """What the subservers must be told; each is returned once."""
        aborts, self._aborts = self._aborts, []
        return aborts

    def open(self, request_id: RequestId, ask: Ask, port: ResponsePort, now: float) -> bool:
        """Take a client in; True if the ask must now be read by the door."""
        deadline_at = now + self._settings.request_timeout_s
        opened = OpenRequest(request_id, ask, port, now, deadline_at)
        opened.story = Story(now, ask.client_id, ask.policy or "") if self.tell else None
        occupancy = Occupancy(self._live, len(self._open) - self._live, self.is_draining)
        self._open[request_id] = opened
        try:
            self._limits.admit(occupancy)
        except CapacityError as error:
            self._refuse(opened, error)
            return False
        return True

    def on_read(self, request_id: RequestId, result: Future[Ticket], now: float) -> None:
        """The door has read an ask, or refused it."""
        opened = self._open.get(request_id)
        if opened is None:
            return
        error = result.exception()
        if error is not None:
            if not isinstance(error, RouterError):
                _log.error("a request could not be read", exc_info=error)
            self._refuse(opened, error)
            return
        opened.ticket = result.result()
        opened.deadline_at = opened.arrived_at + opened.ticket.timeout_s
        self._queue.append(request_id)
        self.start_queued(now)

    def start_queued(self, now: float) -> None:
        """First come, first served, as far as there is room."""
        while self._queue and self._limits.has_room(self._live):
            opened = self._open.get(self._queue.popleft())
            if opened is not None and opened.ticket is not None:
                self._start(opened, opened.ticket, now)

    def on_emit(self, emit: Emit, now: float) -> None:
        opened = self._living.get(emit.request_id)
        if opened is None or opened.answer is None or not opened.is_in_life(emit.epoch):
            self._counts.stale_messages += 1
            return
        before = opened.answer.output_tokens
        try:
            self._peers.must_know(emit.model)
            deliveries = opened.answer.on_emit(emit, opened.port.unsent, now)
        except RemoteProtocolError as error:
            deliveries = opened.answer.end(Reason.ERROR, *explained(error))
        opened.observe_tokens(self._counts, opened.answer.output_tokens - before, emit.model, now)
        if opened.answer.wants_abort:
            self._abort(opened)
        self._deliver(opened, deliveries, now)
        self.flush_times.note(opened)

    def flush(self, now: float) -> None:
        """Send the text that is due."""
        for opened, answer in self.flush_times.due(now):
            self._deliver(opened, answer.on_tick(opened.port.unsent, now), now)

    def on_close(self, close: Close, now: float) -> None:
        opened = self._living.get(close.request_id)
        if opened is None or opened.answer is None or not opened.is_in_life(close.epoch):
            self._note_late_close(close.request_id, now)
            return
        code, message = split_code(close.message)
        if code == PeerLostError.code and self._loss.choice is not PeerLoss.FAIL:
            self._lose(opened, message, now)
            return
        self._deliver(opened, opened.answer.on_close(close, now), now)

    def _note_late_close(self, request_id: RequestId, now: float) -> None:
        """The word of whoever held a request that we ended; or one that nobody waits for."""
        cancelled_at = self._cancelled.pop(request_id, None)
        if cancelled_at is None:
            self._counts.stale_messages += 1
        else:
            self._counts.observe_cancel(now - cancelled_at)

    def on_tick(self, now: float) -> None:
        for opened in list(self._open.values()):
            if now >= opened.deadline_at:
                waited = f"no complete answer within {opened.deadline_at - opened.arrived_at:g} s"
                self.end(opened.request_id, Reason.ERROR, ("TR_DEADLINE", waited), now)
            elif opened.lives is not None and opened.lives.is_between:
                self._go_on(opened, now)
            elif opened.answer is not None and self._is_stranded(opened.answer, now):
                self._lose(opened, "tokens that its close counts never arrived", now)
            elif opened.answer is not None:
                self._deliver(opened, opened.answer.on_tick(opened.port.unsent, now), now)

    def on_lost(self, subserver: ReplicaIndex, now: float) -> None:
        """`subserver` is gone, and with it the lives that cannot do without it."""
        name = self._peers.subserver_name(subserver)
        lost = f"the process of model {name!r} died while it held the request"
        for opened in list(self._living.values()):
            answer, life = opened.answer, opened.life
            if answer is None or life is None or answer.is_closed:
                continue
            if self._peers.is_hit(subserver, life, opened.subserver, self._loss.choice):
                self._lose(opened, lost, now)

    def end(self, request_id: RequestId, reason: Reason, cause: tuple[str, str], now: float) -> None:
        """End a request from outside, for `cause` = (code, message); nothing if it has ended."""
        opened = self._open.get(request_id)
        if opened is None:
            return
        if opened.answer is None:
            self._turn_away(opened, Finish(reason, *cause, prompt_tokens=opened.prompt_tokens))
        else:
            self._deliver(opened, opened.answer.end(reason, *cause), now)

    def end_all(self, cause: tuple[str, str], now: float) -> None:
        for request_id in list(self._open):
            self.end(request_id, Reason.ERROR, cause, now)

    def _start(self, opened: OpenRequest, ticket: Ticket, now: float) -> None:
        opened.lives = Lives(self._loss, ticket.request, ticket.needed)
        start = opened.lives.begin(self._peers.up())
        if start is None or not self._begin(opened, start, ()):
            down = [model for model in ticket.needed if not self._peers.is_up(model)]
            name = self._peers.name(down[0] if down else ticket.entry)
            self._refuse(opened, PeerLostError(f"model {name!r} cannot be reached: try again later"))
            return
        text = self.timed(self._text.text_source())
        opened.answer = Answer(terms_of(self._settings, opened.ask, ticket), text)
        self._live += 1
        opened.note_start(now)

    def _begin(self, opened: OpenRequest, start: Start, answer: Sequence[int]) -> bool:
        """Begin a life; False when its entry's queue is full."""
        opened.subserver = self._peers.admit(start.entry, Admit(start.request, tuple(answer)))
        if opened.subserver is None:
            return False
        opened.life = start
        self._living[start.request.request_id] = opened
        return True

    def _lose(self, opened: OpenRequest, message: str, now: float) -> None:
        """The present life is over, because of `message`."""
        answer, life, lives = opened.answer, opened.life, opened.lives
        assert answer is not None and life is not None and lives is not None, opened.request_id
        self._abort(opened)
        self._forget_life(opened)
        tokens = answer.begin_again()
        reason = end_of(life.request, tokens)
        if reason is not None or answer.wants_abort:
            self._deliver(opened, answer.end(reason or Reason.STOP), now)
            return
        opened.loss = message
        lives.lose(len(tokens), now)
        self._go_on(opened, now)

    def _go_on(self, opened: OpenRequest, now: float) -> None:
        """Begin the next life if somebody can give it."""
        answer, lives = opened.answer, opened.lives
        assert answer is not None and lives is not None, opened.request_id
        found = lives.next(self._peers.up(), now)
        if isinstance(found, GiveUp):
            self._deliver(opened, answer.end(Reason.ERROR, PeerLostError.code, opened.loss), now)
        elif isinstance(found, Start):
            tokens = answer.begin_again()
            if self._begin(opened, found, tokens):
                opened.is_aborted = False
                self._counts.recoveries += 1
            else:
                lives.lose(len(tokens), now)

    def _is_stranded(self, answer: Answer, now: float) -> bool:
        return self._loss.choice is not PeerLoss.FAIL and answer.is_stranded(now)

    def _deliver(self, opened: OpenRequest, deliveries: list[Delivery], now: float) -> None:
        for delivery in deliveries:
            piece = opened.piece(delivery, self._text.spelling)
            self._counts.count_tokens(piece.sources)
            opened.count_routed(piece.sources)
            if piece.finish is not None:
                self._forget_live(opened, piece.finish, now)
            opened.port.put(piece)

    def _forget_live(self, opened: OpenRequest, finish: Finish, now: float) -> None:
        del self._open[opened.request_id]
        self._live -= 1
        self._counts.finish(finish, now - opened.arrived_at, opened.routed)
        self._tell(opened, finish)
        if opened.answer is not None and not opened.answer.is_closed:
            self._abort(opened)
            if opened.life is not None:
                self._remember_cancel(opened.life.request.request_id, now)
        self._forget_life(opened)

    def _tell(self, opened: OpenRequest, finish: Finish) -> None:
        if self.tell is not None and opened.story is not None:
            self.tell(opened.story, finish)

    def _remember_cancel(self, request_id: RequestId, now: float) -> None:
        """For the close that follows; of a model that has died none does."""
        self._cancelled[request_id] = now
        if len(self._cancelled) > CANCELLED_MAX:
            del self._cancelled[next(iter(self._cancelled))]

    def _forget_life(self, opened: OpenRequest) -> None:
        if opened.life is not None:
            del self._living[opened.life.request.request_id]
            opened.life = None
            if opened.subserver is not None:
                self._peers.release(opened.subserver)

    def _abort(self, opened: OpenRequest) -> None:
        if opened.life is not None and not opened.is_aborted:
            opened.is_aborted = True
            self._aborts.append(Abort(opened.life.request.request_id, opened.life.request.epoch))

    def _refuse(self, opened: OpenRequest, error: BaseException) -> None:
        self._turn_away(opened, Finish(Reason.ERROR, *explained(error), prompt_tokens=opened.prompt_tokens))

    def _turn_away(self, opened: OpenRequest, finish: Finish) -> None:
        """End a request that never started."""
        del self._open[opened.request_id]
        self._counts.turn_away(finish)
        self._tell(opened, finish)
        opened.port.put(Piece(prompt_tokens=opened.prompt_tokens, finish=finish))
