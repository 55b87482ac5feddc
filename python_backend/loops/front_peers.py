"""The subservers as the front knows them: who is up, what each can take, who was lost.

Decides on times it is given and posts through the transport it is given; must never read a clock.
Invariant: a model that is up has sent a beat of its present process within the time limit.
"""

from __future__ import annotations

import logging

from python_backend.loops.peer_watch import News, PeerWatch
from python_backend.loops.request_door import Beats
from python_backend.transport.base import HandoffTransport, Peer
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex
from router_backend.handoff.codec import Message, pack
from router_backend.handoff.farewells import Farewells
from router_backend.handoff.message import Abort, Beat

_log = logging.getLogger(__name__)


class FrontPeers:
    """`names` are the endpoints of the subservers in deployment order."""

    def __init__(
        self, names: tuple[str, ...], transport: HandoffTransport, timeout_s: float, now: float
    ) -> None:
        self._names = names
        self._transport = transport
        self._watch = PeerWatch(names, timeout_s, now)
        self._beats: dict[str, Beat] = {}
        self._unposted: list[tuple[str, Message]] = []
        self._farewells = Farewells()

    def beats(self) -> Beats:
        """The latest beat of each model, None for one that is down."""
        return tuple(self._beats.get(name) for name in self._names)

    def is_up(self, model: ModelIndex) -> bool:
        return self._names[model] in self._beats

    def up(self) -> tuple[bool, ...]:
        return tuple(name in self._beats for name in self._names)

    def must_know(self, model: ModelIndex) -> None:
        """Raises RemoteProtocolError for a model that the deployment does not have."""
        if not 0 <= model < len(self._names):
            raise RemoteProtocolError(f"tokens by model {model}, the deployment has {len(self._names)}")

    def name(self, model: ModelIndex) -> str:
        return self._names[model]

    def hear(self, beat: Beat, now: float) -> list[ModelIndex]:
        """A sign of life; returns the model if it is a new process and what the old one held is lost."""
        if beat.endpoint not in self._names:
            return []
        news = self._watch.hear(beat.endpoint, now, beat.instance)
        was_up = beat.endpoint in self._beats
        self._beats[beat.endpoint] = beat
        if news is News.RESTARTED or not was_up:
            _log.info("model %s is up, process %x", beat.endpoint, beat.instance)
            if news is News.RESTARTED:
                self._transport.forget(Peer(beat.endpoint))
            self._unposted.extend((beat.endpoint, abort) for abort in self._farewells.again(beat.endpoint))
        return [self._model(beat.endpoint)] if news is News.RESTARTED and was_up else []

    def lost(self, now: float) -> list[ModelIndex]:
        """The models that fell silent since the last call."""
        gone = []
        for name in self._watch.judge(now):
            self._watch.lose(name)
            self._transport.forget(Peer(name))
            if self._beats.pop(name, None) is not None:
                _log.warning("model %s is lost: no sign of life", name)
                gone.append(self._model(name))
        return gone

    def post(self, model: ModelIndex, message: Message) -> bool:
        return self._transport.post(Peer(self._names[model]), pack(message))

    def tell_all(self, abort: Abort, now: float) -> None:
        """To every model: later where a queue is full, and again to one that was away once it is back."""
        for name in self._names:
            self._farewells.note(name, abort, self._watch.heard_at(name), now)
            self._unposted.append((name, abort))
        self.retry()

    def beat(self, beat: Beat) -> None:
        """Our own sign of life; the next one makes up for one that finds a full queue."""
        for name in self._names:
            self._transport.post(Peer(name), pack(beat))

    def retry(self) -> None:
        """Post what a full queue refused, as long as the model is up."""
        self._unposted = [
            (name, message)
            for name, message in self._unposted
            if name in self._beats and not self._transport.post(Peer(name), pack(message))
        ]

    def _model(self, name: str) -> ModelIndex:
        return ModelIndex(self._names.index(name))
