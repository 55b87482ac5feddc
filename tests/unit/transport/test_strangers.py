"""TCP with keys: who may speak, under which name, and what is told of the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from python_backend.transport.base import Frames, Peer
from python_backend.transport.keyring import Keyring, read_keyring, write_keys
from python_backend.transport.wiring import TcpWiring
from python_backend.transport.zmq_transport import ZmqTransport
from router_backend.core.errors import ConfigError
from tests.free_ports import free_addresses

BOUND_S = 20.0
NAMES = ("small", "large")
Opener = Callable[..., ZmqTransport]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    write_keys(tmp_path / "keys", NAMES)
    return tmp_path / "keys"


@pytest.fixture
def opened(keys: Path) -> Iterator[Opener]:
    """Opens the transport of a name with its own keys, or with others."""
    addresses, made = free_addresses(NAMES), []

    def opener(name: str, ring: Keyring | str | None = "own") -> ZmqTransport:
        found = read_keyring(keys, name) if isinstance(ring, str) else ring
        made.append(ZmqTransport(TcpWiring(addresses, found), name))
        return made[-1]

    yield opener
    for transport in made:
        transport.close()


def until(transport: ZmqTransport, holds: Callable[[list[tuple[Peer, Frames]]], bool]) -> bool:
    """Polls until what came together `holds`."""
    came: list[tuple[Peer, Frames]] = []
    give_up = time.monotonic() + BOUND_S
    while time.monotonic() < give_up:
        came += transport.poll(0.05)
        if holds(came):
            return True
    return False


def test_two_endpoints_with_known_keys_speak_both_ways(opened: Opener) -> None:
    small, large = opened("small"), opened("large")
    small.post(Peer("large"), [b"there"])
    large.post(Peer("small"), [b"back"])

    assert until(large, lambda came: came == [("small", [b"there"])])
    assert until(small, lambda came: came == [("large", [b"back"])])
    assert (small.refused, large.refused) == (0, 0)


def test_a_sender_without_keys_is_turned_away_and_counted(opened: Opener, keys: Path) -> None:
    large, stranger = opened("large"), opened("small", None)
    stranger.post(Peer("large"), [b"let me in"])

    assert until(large, lambda came: large.refused > 0 and not came)


def test_a_sender_with_a_key_of_its_own_making_is_turned_away_and_counted(
    opened: Opener, keys: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_keys(tmp_path / "other", ["small"])
    forged = replace(read_keyring(tmp_path / "other", "small"), public={})
    public = {**read_keyring(keys, "small").public, "small": read_keyring(tmp_path / "other", "small").public}
    own = read_keyring(tmp_path / "other", "small").public["small"]
    stranger = opened("small", replace(forged, public={**public, "small": own}))
    large = opened("large")
    stranger.post(Peer("large"), [b"let me in"])

    assert until(large, lambda came: large.refused > 0 and not came)
    assert caplog.messages == [
        "large: turned away a connection that could not prove a known key (later ones are only counted)"
    ]


def test_a_known_endpoint_cannot_speak_in_anothers_name(opened: Opener, keys: Path) -> None:
    write_keys(keys, ["front"])
    large, front = opened("large"), opened("small", read_keyring(keys, "front"))
    front.post(Peer("large"), [b"I am small"])

    assert until(large, lambda came: large.refused == 1 and not came)


def test_a_peer_whose_address_or_key_is_not_known_cannot_be_posted_to(opened: Opener, keys: Path) -> None:
    small = opened("small")

    assert small.post(Peer("nobody"), [b"x"]) is False
    (keys / "large.public").unlink()
    ring = read_keyring(keys, "small")
    with pytest.raises(ConfigError, match=r"large.public is missing"):
        ring.public_key("large")


def test_an_address_that_is_taken_is_named(keys: Path) -> None:
    addresses = free_addresses(["small"])
    first = ZmqTransport(TcpWiring(addresses), "small")
    with pytest.raises(ConfigError, match=r"addresses.small: cannot bind 127.0.0.1:\d+: Address already"):
        ZmqTransport(TcpWiring(addresses), "small")
    first.close()


def test_a_name_that_is_not_this_machines_is_where_to_be_reached_and_not_where_to_listen() -> None:
    addresses = {"small": "small.invalid:5603"}
    with pytest.raises(ConfigError, match=r"addresses.small: cannot bind .* under listen \(0.0.0.0 for all"):
        ZmqTransport(TcpWiring(addresses), "small")
    with pytest.raises(ConfigError, match=r"listen.small: cannot bind elsewhere.invalid:5603: No such"):
        ZmqTransport(TcpWiring(addresses, listening={"small": "elsewhere.invalid:5603"}), "small")


def test_an_endpoint_without_an_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"addresses: 'small' is missing"):
        ZmqTransport(TcpWiring({}), "small")


def test_what_was_queued_for_a_dead_peer_does_not_reach_its_successor(opened: Opener) -> None:
    small = opened("small")
    small.post(Peer("large"), [b"for the dead"])
    small.forget(Peer("large"))
    small.forget(Peer("large"))
    small.post(Peer("large"), [b"for the living"])

    assert until(opened("large"), lambda came: came == [("small", [b"for the living"])])
