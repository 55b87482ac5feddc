"""The handoff loop of a subserver: its transport, and who can be reached by it.

Carries effects out to peers and homes and messages in to the decode loop, beats, and notices who has
fallen silent. Must never decide about a request. The invariant: an effect is posted, given to the local
client loop, or the loss of its receiver is reported; none disappears unnoticed.

Effects are posted by the thread that decided them, hand-offs before commits: waking another thread costs
more than the post, and that one would first have to wait for Python's lock, which the decode loop keeps
until its next step runs. What one step says to one receiver travels as one letter. A hand-off's letter is
put before the peer's decode loop at once: seen in parts, it would start a batch with its first part only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from python_backend.loops.decode_loop import DecodeEvent, HomeLost, PeerBack, PeerLost
from python_backend.loops.inbox import Inbox
from python_backend.loops.loop_figures import Lag
from python_backend.loops.peer_watch import News, PeerWatch
from python_backend.transport.base import Frames, HandoffTransport, Peer
from router_backend.core.effects import Close, Effect, Emit, Send
from router_backend.core.errors import ConfigError, RemoteProtocolError
from router_backend.core.replicas import ReplicaIndex
from router_backend.handoff.codec import Message, messages_of, pack, unpack
from router_backend.handoff.farewells import Farewells
from router_backend.handoff.message import Beat, Finished, Handoff, Observation

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """Who this subserver is among its peers, and the rhythm of life signs.

    `subservers` are the endpoints of all of them by their number; `beat` names this one.
    """

    beat: Beat
    subservers: tuple[str, ...]
    heartbeat_s: float
    peer_timeout_s: float
    models: int = 0
    """How many models they serve; 0 = one each."""

    def __post_init__(self) -> None:
        if self.peer_timeout_s < 3 * self.heartbeat_s:
            raise ConfigError(
                f"front.peer_timeout_s: {self.peer_timeout_s} is less than three times front.heartbeat_ms: "
                "one late beat would count as a death"
            )

    @property
    def endpoint(self) -> str:
        return self.beat.endpoint

    @property
    def peers(self) -> tuple[str, ...]:
        return tuple(name for name in self.subservers if name != self.endpoint)

    @property
    def num_models(self) -> int:
        return self.models or len(self.subservers)


@dataclass(frozen=True, slots=True)
class Doors:
    """Where arriving things go: events to the decode loop, commits of local clients to the client loop,
    reports to whoever plans."""

    decode: Inbox[DecodeEvent]
    client: Callable[[Emit | Close], None]
    planning: Callable[[Observation], None] = lambda observation: None


@dataclass(slots=True)
class TrafficFigures:
    """Counts since the start."""

    posted: int = 0
    received: int = 0
    undeliverable: int = 0
    """Effects whose receiver was already known to be gone, or whose queue was full."""
    malformed: int = 0


class HandoffLoop:
    """`perform` from the decode loop's thread, `stop` from any, everything else in `run`'s thread."""

    def __init__(
        self, address: Address, transport: HandoffTransport, doors: Doors, clock: Callable[[], float]
    ) -> None:
        self.figures = TrafficFigures()
        self.lag = Lag()
        self.is_progressing: Callable[[], bool] = lambda: True
        """Whether the decode loop moves. One that hangs must not look alive because this loop does."""
        self._address = address
        self._transport = transport
        self._doors = doors
        self._clock = clock
        self._lock = threading.Lock()
        """Held while the watch, the news and the figures change."""
        self._watch = PeerWatch(address.peers, address.peer_timeout_s, clock())
        self._beat_frames = pack(address.beat)
        self._beat_at = float("-inf")
        self._farewells = Farewells()
        self._complained: set[Peer] = set()
        self._other_doors: dict[type, Callable[[Any], None]] = {
            Emit: doors.client,
            Close: doors.client,
            Observation: doors.planning,
            Beat: lambda beat: None,
        }
        """Who is told of what does not concern the decode loop."""
        self._news: list[DecodeEvent] = []
        """For the decode loop, gathered during a turn."""
        self._is_stopping = False

    def perform(self, effects: list[Effect]) -> None:
        """Carry out effects, in order for each receiver; without waiting."""
        letters: dict[str, list[Message]] = {}
        commits: dict[str, list[Emit | Close]] = {}
        for effect in effects:
            if isinstance(effect, Send):
                # Send.message is whatever the scheduler made; every one of them is in the codec's list.
                message: Message = effect.message  # type: ignore[assignment]
                letters.setdefault(self._address.subservers[effect.target], []).append(message)
            else:
                commits.setdefault(effect.home, []).append(effect)
        at_home = commits.pop(self._address.endpoint, ())
        with self._lock:
            for endpoint, messages in letters.items():
                self._post(endpoint, messages)
            for endpoint, told in commits.items():
                self._post(endpoint, told)
            self._hand_in()
        for commit in at_home:
            self._doors.client(commit)

    @property
    def peers_up(self) -> int:
        return self._watch.up(self._address.peers)

    def run(self) -> None:
        while not self._is_stopping:
            self.turn()

    def stop(self) -> None:
        """End `run`; from any thread."""
        self._is_stopping = True
        self._transport.wake()

    def turn(self) -> None:
        """Beat when due, wait for frames at most until the next beat is due."""
        with self._lock:
            now = self._clock()
            self._beat(now)
            self._hand_in()
        arrived = self._transport.poll(self._beat_at + self._address.heartbeat_s - now)
        letters = [(sender, self._read(sender, letter)) for sender, letter in arrived]
        now = self._clock()
        with self._lock:
            for sender, messages in letters:
                self._take(sender, messages, now)
            self._hand_in()
            for name in self._watch.judge(now):
                self._report_lost(name)
            self._hand_in()

    def _post(self, endpoint: str, messages: Sequence[Message]) -> None:
        if endpoint not in self._address.subservers and not self._watch.is_up(endpoint):
            # A peer may speak of a home before its first beat gets here: its time to beat starts now.
            self._watch.hear(endpoint, self._clock())
        self._note_farewells(endpoint, messages)
        is_reachable = self._watch.is_up(endpoint)
        frames = [frame for message in messages for frame in pack(message)] if is_reachable else []
        if is_reachable and self._transport.post(Peer(endpoint), frames):
            self.figures.posted += len(messages)
            return
        self.figures.undeliverable += len(messages)
        if is_reachable or any(isinstance(message, Handoff) for message in messages):
            self._report_lost(endpoint)

    def _note_farewells(self, endpoint: str, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, Finished):
                self._farewells.note(endpoint, message, self._watch.heard_at(endpoint), self._clock())

    def _beat(self, now: float) -> None:
        if now < self._beat_at + self._address.heartbeat_s:
            return
        self.lag.note(self._beat_at + self._address.heartbeat_s, now)
        self._beat_at = now
        if not self.is_progressing():
            return
        for endpoint in self._watch.names:
            self._transport.post(Peer(endpoint), self._beat_frames)

    def _read(self, sender: Peer, letter: Frames) -> list[Message]:
        """The messages in a letter, less those that are none."""
        messages: list[Message] = []
        for frames in messages_of(letter):
            try:
                messages.append(self._checked(unpack(frames)))
            except RemoteProtocolError as error:
                self._complain(sender, error)
        return messages

    def _complain(self, sender: Peer, error: RemoteProtocolError) -> None:
        self.figures.malformed += 1
        if sender not in self._complained:
            self._complained.add(sender)
            _log.error("dropped a message of %r (later ones are only counted): %s", sender, error)

    def _take(self, sender: Peer, messages: list[Message], now: float) -> None:
        """A letter was one sign of life, whatever its length."""
        if not messages:
            return
        self.figures.received += len(messages)
        self._note_life(sender, messages[0], now)
        for message in messages:
            door = self._other_doors.get(type(message))
            if door is None:
                self._news.append(message)  # type: ignore[arg-type]
            else:
                door(message)

    def _note_life(self, sender: Peer, first: Message, now: float) -> None:
        """`first` is the first message of a letter: a beat is always alone."""
        instance = first.instance if isinstance(first, Beat) else None
        news = self._watch.hear(sender, now, instance)
        if news is News.RESTARTED:
            self._report_lost(sender)
            self._watch.hear(sender, now, instance)
        if news is not News.NOTHING and sender in self._address.peers:
            self._news.append(PeerBack(self._number(sender)))
            farewells = self._farewells.again(sender)
            if farewells:
                self._post(sender, list(farewells))

    def _checked(self, message: Message) -> Message:
        """`message`, or RemoteProtocolError when it names models or homes that are not these."""
        source, subservers = getattr(message, "source", 0), len(self._address.subservers)
        if not 0 <= source < subservers:
            raise RemoteProtocolError(f"source {source} is not one of {subservers} subservers")
        if isinstance(message, Handoff):
            is_ours = message.target == self._address.beat.model
            if not is_ours or len(message.seen) != self._address.num_models:
                raise RemoteProtocolError(f"a hand-off to model {message.target} that saw {message.seen}")
        elif isinstance(message, Emit | Close) and message.home != self._address.endpoint:
            raise RemoteProtocolError(f"commits for {message.home!r} do not belong here")
        return message

    def _hand_in(self) -> None:
        """Put before the decode loop, at once, what it must know."""
        if self._news:
            news, self._news = self._news, []
            self._doors.decode.put_all(news)

    def _report_lost(self, endpoint: str) -> None:
        self._watch.lose(endpoint)
        self._transport.forget(Peer(endpoint))
        if endpoint in self._address.subservers:
            self._news.append(PeerLost(self._number(endpoint)))
        else:
            self._news.append(HomeLost(endpoint))

    def _number(self, endpoint: str) -> ReplicaIndex:
        return ReplicaIndex(self._address.subservers.index(endpoint))
