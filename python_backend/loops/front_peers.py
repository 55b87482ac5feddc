"""The subservers as the front knows them: who is up, what each can take, who was lost.

Decides on times it is given and posts through the transport it is given; must never read a clock.
Invariant: a model that is up has sent a beat of its present process within the time limit.
"""

from __future__ import annotations

import logging

from python_backend.config import Deployment
from python_backend.loops.peer_watch import News, PeerWatch
from python_backend.loops.request_door import Beats
from python_backend.transport.base import HandoffTransport, Peer
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.replicas import ReplicaIndex, least_loaded
from router_backend.core.request import ModelIndex
from router_backend.handoff.codec import Message, pack
from router_backend.handoff.farewells import Farewells
from router_backend.handoff.message import Abort, Admit, Beat
from router_backend.stream.lives import PeerLoss, Start

_log = logging.getLogger(__name__)


class FrontPeers:
    """Of the subservers of `deployment`; "up" is a model when one of its replicas is."""

    def __init__(self, deployment: Deployment, transport: HandoffTransport, now: float) -> None:
        names, timeout_s = deployment.subservers, deployment.front.peer_timeout_s
        self._models = deployment.names
        self._names = names
        self._replicas = deployment.replicas
        self._of = [self._replicas.of(model) for model in range(len(self._models))]
        self._load = [0] * len(names)
        """Lives that began on each subserver, and have not ended."""
        self._transport = transport
        self._watch = PeerWatch(names, timeout_s, now)
        self._beats: dict[str, Beat] = {}
        self._unposted: list[tuple[str, Message]] = []
        self._farewells = Farewells()

    def beats(self) -> Beats:
        """The latest beat of each model, None for one that is down; of several replicas, the one with the
        least room speaks for all."""
        living = map(self._living, self._every)
        return tuple(min(map(self._beat_of, found), key=_room, default=None) for found in living)

    def is_up(self, model: ModelIndex) -> bool:
        return bool(self._living(model))

    def up(self) -> tuple[bool, ...]:
        """By model."""
        return tuple(map(self.is_up, self._every))

    def subservers_up(self) -> tuple[bool, ...]:
        return tuple(name in self._beats for name in self._names)

    def is_hit(
        self, lost: ReplicaIndex, life: Start, begun_on: ReplicaIndex | None, choice: PeerLoss
    ) -> bool:
        """Does the loss of a subserver end `life`. Where its model has other replicas, a life that did not
        begin there may well be on one of those: who handed it to the lost one will say so."""
        model = self._replicas.models[lost]
        return lost == begun_on if len(self._of[model]) > 1 else life.is_hit(model, choice)

    def must_know(self, model: ModelIndex) -> None:
        """Raises RemoteProtocolError for a model that the deployment does not have."""
        if not 0 <= model < len(self._models):
            raise RemoteProtocolError(f"tokens by model {model}, the deployment has {len(self._models)}")

    def name(self, model: ModelIndex) -> str:
        return self._models[model]

    def subserver_name(self, subserver: ReplicaIndex) -> str:
        return self._names[subserver]

    def hear(self, beat: Beat, now: float) -> list[ReplicaIndex]:
        """A sign of life; returns the subserver if it is a new process and what the old one held is lost."""
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
        return [self._number(beat.endpoint)] if news is News.RESTARTED and was_up else []

    def lost(self, now: float) -> list[ReplicaIndex]:
        """The subservers that fell silent since the last call."""
        gone = []
        for name in self._watch.judge(now):
            self._watch.lose(name)
            self._transport.forget(Peer(name))
            if self._beats.pop(name, None) is not None:
                _log.warning("model %s is lost: no sign of life", name)
                gone.append(self._number(name))
        return gone

    def admit(self, model: ModelIndex, admit: Admit) -> ReplicaIndex | None:
        """Give a life to the replica of `model` that has the fewest of this front's; None if that cannot be:
        nobody is up, or its queue is full. `release` it when the life is over."""
        chosen = least_loaded(self._living(model), self._load, admit.request.request_id)
        if chosen is None or not self._transport.post(Peer(self._names[chosen]), pack(admit)):
            return None
        self._load[chosen] += 1
        return chosen

    def release(self, subserver: ReplicaIndex) -> None:
        """A life that began there is over."""
        self._load[subserver] -= 1

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

    @property
    def _every(self) -> tuple[ModelIndex, ...]:
        return tuple(map(ModelIndex, range(len(self._models))))

    def _living(self, model: ModelIndex) -> list[ReplicaIndex]:
        return [subserver for subserver in self._of[model] if self._names[subserver] in self._beats]

    def _beat_of(self, subserver: ReplicaIndex) -> Beat:
        return self._beats[self._names[subserver]]

    def _number(self, name: str) -> ReplicaIndex:
        return ReplicaIndex(self._names.index(name))


def _room(beat: Beat) -> int:
    return min(beat.length_max, beat.capacity_tokens)
