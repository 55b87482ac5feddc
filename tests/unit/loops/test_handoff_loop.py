"""The handoff loop, turn by turn, on a transport that only remembers and a clock that is set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from python_backend.loops.decode_loop import DecodeEvent, HomeLost, PeerBack, PeerLost
from python_backend.loops.handoff_loop import Address, Doors, HandoffLoop, TrafficFigures
from python_backend.loops.inbox import Inbox
from python_backend.transport.base import Frames, Peer
from router_backend.core.effects import Close, Emit, Reason, Send
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, Request, RequestId
from router_backend.handoff.codec import Message, pack, unpack
from router_backend.handoff.message import (
    Abort,
    Admit,
    Admitted,
    Beat,
    Finished,
    Handoff,
    Observation,
    Thresholds,
)

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
RID = RequestId("a")
REQUEST = Request(RID, (1, 2), 9)
BEAT = Beat("small", 11, 0, 100, 64, 1024, (99,))
TO_LARGE = Handoff(RID, 0, SMALL, LARGE, 0, 0, (1, 2, 7), (3, 3), request=REQUEST)
TO_SMALL = Handoff(RID, 0, LARGE, SMALL, 1, 3, (8,), (4, 4))
FINISHED = Finished(RID, 0, SMALL)


def emit(home: str) -> Emit:
    return Emit(home, RID, 0, 0, (7,), SMALL)


@dataclass
class World:
    """Transport and clock. `arriving` is what the next poll hands out; polling takes `poll_s`."""

    now: float = 0.0
    poll_s: float = 0.0
    arriving: list[tuple[Peer, Frames]] = field(default_factory=list)
    letters: list[tuple[str, list[Message]]] = field(default_factory=list)
    full: set[str] = field(default_factory=set)
    timeouts: list[float] = field(default_factory=list)
    wakes: int = 0
    forgotten: list[str] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def post(self, peer: Peer, frames: Frames) -> bool:
        if peer in self.full:
            return False
        self.letters.append((peer, [unpack(frames[i : i + 2]) for i in range(0, len(frames), 2)]))
        return True

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        self.timeouts.append(timeout_s)
        self.now += self.poll_s
        arrived, self.arriving = self.arriving, []
        return arrived

    def wake(self) -> None:
        self.wakes += 1

    def forget(self, peer: Peer) -> None:
        self.forgotten.append(peer)

    @property
    def refused(self) -> int:
        return 0

    def close(self) -> None:
        return None

    def arrive(self, sender: str, message: Message) -> None:
        self.arriving.append((Peer(sender), pack(message)))

    @property
    def posted(self) -> list[tuple[str, Message]]:
        return [(peer, message) for peer, letter in self.letters for message in letter]

    def posted_but_beats(self) -> list[tuple[str, Message]]:
        return [(peer, message) for peer, message in self.posted if not isinstance(message, Beat)]


class Subject:
    """The loop of `small` in a deployment of two, and what comes out of its doors."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.decode: Inbox[DecodeEvent] = Inbox()
        self.client: list[Any] = []
        self.planning: list[Observation] = []
        address = Address(BEAT, ("small", "large"), heartbeat_s=0.25, peer_timeout_s=2.0)
        doors = Doors(self.decode, self.client.append, self.planning.append)
        self.loop = HandoffLoop(address, world, doors, world.clock)

    def turns_until(self, until: float) -> list[DecodeEvent]:
        while self.world.now < until:
            self.world.now += 0.25
            self.loop.turn()
        return self.decode.drain()


def test_a_loop_whose_engine_hangs_does_not_beat() -> None:
    world = World(poll_s=0.25)
    subject = Subject(world)
    subject.loop.is_progressing = lambda: world.now < 1.0
    for _ in range(12):
        subject.loop.turn()

    assert world.posted == [("large", BEAT)] * 4


def test_a_lost_peer_is_told_again_what_has_ended_and_no_letter_waits_for_its_successor() -> None:
    world = World()
    subject = Subject(world)
    subject.loop.perform([Send(LARGE, FINISHED)])
    lost = subject.turns_until(3.0)
    second = Finished(RequestId("b"), 0, SMALL)
    subject.loop.perform([Send(LARGE, second)])
    before = world.posted_but_beats()
    world.arrive("large", Beat("large", 12, 1))
    subject.loop.turn()
    world.arrive("large", Beat("large", 12, 1))
    subject.loop.turn()

    assert (lost, before, world.forgotten) == ([PeerLost(LARGE)], [("large", FINISHED)], ["large"])
    assert world.posted_but_beats() == [("large", FINISHED), ("large", FINISHED), ("large", second)]


def test_effects_go_out_at_once_in_order_and_to_peers_first() -> None:
    world = World()
    subject = Subject(world)
    close = Close("front", RID, 0, Reason.STOP, 1)
    subject.loop.perform([emit("front"), Send(LARGE, TO_LARGE), emit("small")])
    subject.loop.perform([close, Send(LARGE, FINISHED)])

    assert world.posted == [
        ("large", TO_LARGE),
        ("front", emit("front")),
        ("large", FINISHED),
        ("front", close),
    ]
    assert (subject.client, world.wakes) == ([emit("small")], 0)
    assert subject.loop.figures == TrafficFigures(posted=4)


def test_whoever_reads_here_is_told_after_the_hand_offs_have_left() -> None:
    world = World()
    told: list[list[tuple[str, Message]]] = []
    doors = Doors(Inbox(), lambda commit: told.append(world.posted))
    address = Address(BEAT, ("small", "large"), heartbeat_s=0.25, peer_timeout_s=2.0)
    HandoffLoop(address, world, doors, world.clock).perform([emit("small"), Send(LARGE, TO_LARGE)])

    assert told == [[("large", TO_LARGE)]]


def test_a_bad_message_costs_the_others_of_its_letter_nothing() -> None:
    world = World()
    subject = Subject(world)
    admitted = Admitted(RID, 0, LARGE)
    world.arriving.append((Peer("large"), [*pack(TO_SMALL), b"?", b"?", *pack(admitted), b"?"]))
    subject.loop.turn()

    assert subject.decode.drain() == [TO_SMALL, admitted]
    assert (subject.loop.figures.received, subject.loop.figures.malformed) == (2, 2)


def test_what_one_step_commits_for_a_home_is_one_letter() -> None:
    world = World()
    close = Close("front", RID, 0, Reason.STOP, 1)
    Subject(world).loop.perform([emit("front"), emit("router"), close])

    assert world.letters == [("front", [emit("front"), close]), ("router", [emit("router")])]


def test_what_one_step_hands_over_is_one_letter_and_arrives_at_once() -> None:
    sender, receiver = World(), World()
    subject = Subject(sender)
    subject.loop.perform([Send(LARGE, TO_LARGE), emit("front"), Send(LARGE, FINISHED)])
    subject.loop.turn()
    receiver.arriving.append((Peer("large"), [*pack(TO_SMALL), *pack(Admitted(RID, 0, LARGE))]))
    receiver.arrive("front", Abort(RID, 0))
    heard = Subject(receiver)
    heard.loop.turn()

    assert ("large", [TO_LARGE, FINISHED]) in sender.letters
    assert len(heard.decode) == 1
    assert heard.decode.drain() == [TO_SMALL, Admitted(RID, 0, LARGE), Abort(RID, 0)]


def test_what_arrives_goes_to_the_decode_loop_and_own_commits_to_the_client_loop() -> None:
    world = World()
    subject = Subject(world)
    admitted = Admitted(RID, 0, LARGE)
    messages: list[Message] = [Admit(REQUEST), TO_SMALL, admitted, Abort(RID, 0), emit("small")]
    for message in messages:
        world.arrive("large", message)
    subject.loop.turn()

    assert subject.decode.drain() == messages[:-1]
    assert (subject.client, subject.loop.figures.received) == ([emit("small")], 5)


def test_reports_go_to_whoever_plans_and_wake_no_decode_loop() -> None:
    world = World()
    subject = Subject(world)
    report = Observation(LARGE, 3, (2, 1), 2, ((3, 1, 27.9),))
    thresholds = Thresholds(LARGE, ((1, 1), (1, 2)), 4.0)
    world.arrive("large", report)
    world.arrive("large", thresholds)
    subject.loop.turn()

    assert (subject.planning, subject.decode.drain()) == ([report], [thresholds])


def test_it_beats_to_peers_and_to_homes_it_has_heard_once_per_period() -> None:
    world = World()
    subject = Subject(world)
    subject.loop.turn()
    world.arrive("front", Beat("front", 5))
    subject.loop.turn()
    world.now = 0.25
    subject.loop.turn()

    assert world.posted == [("large", BEAT), ("large", BEAT), ("front", BEAT)]


def test_a_poll_waits_no_longer_than_to_the_next_beat() -> None:
    world = World(poll_s=0.1)
    subject = Subject(world)
    for _ in range(3):
        subject.loop.turn()

    assert world.timeouts == pytest.approx([0.25, 0.15, 0.05])


def test_a_silent_peer_is_lost_once_and_is_back_when_it_beats() -> None:
    world = World()
    subject = Subject(world)
    lost = subject.turns_until(6.0)
    up_while_lost = subject.loop.peers_up
    world.arrive("large", Beat("large", 3, 1))
    subject.loop.turn()

    assert (lost, up_while_lost) == ([PeerLost(LARGE)], 0)
    assert (subject.decode.drain(), subject.loop.peers_up) == ([PeerBack(LARGE)], 1)


def test_a_silent_home_is_lost_and_no_longer_beaten_to() -> None:
    world = World()
    subject = Subject(world)
    world.arrive("front", Beat("front", 5))
    events = subject.turns_until(6.0)
    world.letters.clear()
    subject.turns_until(6.5)

    assert HomeLost("front") in events
    assert world.posted == [("large", BEAT), ("large", BEAT)]


def test_another_instance_of_a_peer_means_that_the_former_is_lost() -> None:
    world = World()
    subject = Subject(world)
    for instance in (3, 3, 4, 4):
        world.arrive("large", Beat("large", instance, 1))
    subject.loop.turn()

    assert subject.decode.drain() == [PeerLost(LARGE), PeerBack(LARGE)]


def test_another_instance_of_a_home_means_that_the_former_is_lost() -> None:
    world = World()
    subject = Subject(world)
    world.arrive("front", Beat("front", 5))
    world.arrive("front", Beat("front", 6))
    world.arrive("front", Admit(REQUEST))
    subject.loop.turn()

    assert subject.decode.drain() == [HomeLost("front"), Admit(REQUEST)]


def test_a_hand_off_to_a_lost_peer_comes_back_as_a_loss_and_other_words_are_counted() -> None:
    world = World()
    subject = Subject(world)
    subject.turns_until(3.0)
    world.letters.clear()
    subject.loop.perform([Send(LARGE, FINISHED)])
    subject.loop.turn()
    after_finished = subject.decode.drain()
    subject.loop.perform([Send(LARGE, TO_LARGE)])
    subject.loop.turn()

    assert (after_finished, subject.decode.drain()) == ([], [PeerLost(LARGE)])
    assert (world.posted_but_beats(), subject.loop.figures.undeliverable) == ([], 2)


@pytest.mark.parametrize(
    ("endpoint", "effect", "loss"),
    [("large", Send(LARGE, FINISHED), PeerLost(LARGE)), ("front", emit("front"), HomeLost("front"))],
)
def test_a_receiver_whose_queue_is_full_counts_as_lost(endpoint: str, effect: Any, loss: DecodeEvent) -> None:
    world = World(full={endpoint})
    subject = Subject(world)
    subject.loop.perform([effect])
    subject.loop.turn()

    assert (subject.decode.drain(), subject.loop.figures.undeliverable) == ([loss], 1)


def test_a_home_that_only_peers_spoke_of_is_served_and_watched_from_then_on() -> None:
    world = World()
    subject = Subject(world)
    subject.loop.perform([emit("front")])
    subject.loop.turn()
    events = subject.turns_until(4.0)

    assert world.posted_but_beats() == [("front", emit("front"))]
    assert HomeLost("front") in events


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"only one"],
        [b"\x01\x00", b"not msgpack"],
        [b"\xff\x00", b""],
        pack(TO_LARGE),
        pack(Handoff(RID, 0, LARGE, SMALL, 0, 0, (1,), (1, 1, 1))),
        pack(Finished(RID, 0, ModelIndex(2))),
        pack(Finished(RID, 0, ModelIndex(-1))),
        pack(emit("front")),
    ],
)
def test_what_cannot_be_meant_is_counted_and_named_once(
    frames: Frames, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(arriving=[(Peer("large"), frames), (Peer("large"), frames)])
    subject = Subject(world)
    world.arrive("large", Abort(RID, 0))
    subject.loop.turn()

    assert (subject.decode.drain(), subject.client) == ([Abort(RID, 0)], [])
    assert (subject.loop.figures.malformed, caplog.text.count("dropped a message of 'large'")) == (2, 1)


def test_a_stopped_loop_beats_no_more_and_still_posts_what_the_decode_loop_says_last() -> None:
    world = World()
    subject = Subject(world)
    subject.loop.stop()
    subject.loop.run()
    subject.loop.perform([emit("front")])

    assert (world.posted, world.wakes) == ([("front", emit("front"))], 1)


def test_a_limit_that_one_late_beat_would_break_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"peer_timeout_s: 0\.5 is less than three times"):
        Address(BEAT, ("small", "large"), heartbeat_s=0.25, peer_timeout_s=0.5)
