"""What ends a poll of the Unix transport, and what does not."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_backend.transport.base import Peer
from python_backend.transport.directory import open_run_dir
from python_backend.transport.unix_transport import UnixTransport

SMALL, LARGE = Peer("small"), Peer("large")
MEGABYTE = [b"x" * (1 << 20)]
_SYSTEMS = select.epoll


class Epolls:
    """The system's epoll, and how often each one woke its owner."""

    def __init__(self) -> None:
        self.wakes: dict[int, int] = {}

    def __call__(self) -> _Epoll:
        return _Epoll(self, len(self.wakes))


class _Epoll:
    def __init__(self, told: Epolls, number: int) -> None:
        self._told, self._number, self._real = told, number, _SYSTEMS()
        told.wakes[number] = 0
        self.register, self.modify, self.close = self._real.register, self._real.modify, self._real.close

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        events = self._real.poll(timeout_s)
        self._told.wakes[self._number] += bool(events)
        return events


@pytest.fixture
def epolls(monkeypatch: pytest.MonkeyPatch) -> Epolls:
    found = Epolls()
    monkeypatch.setattr(select, "epoll", found)
    return found


@pytest.fixture
def pair(epolls: Epolls, tmp_path: Path) -> Iterator[tuple[UnixTransport, UnixTransport]]:
    folder = open_run_dir(tmp_path / "run")
    both = UnixTransport(folder, SMALL), UnixTransport(folder, LARGE)
    yield both
    for transport in both:
        transport.close()


def test_a_peer_that_reads_a_letter_wakes_nobody(
    pair: tuple[UnixTransport, UnixTransport], epolls: Epolls
) -> None:
    small, large = pair
    for number in range(10):
        small.post(LARGE, [b"%d" % number])
        small.poll(0.0)
        assert _heard(large) == [[b"%d" % number]]
        small.poll(0.0)
    assert epolls.wakes[0] == 0


def test_a_peer_that_reads_wakes_who_waits_for_that_and_nobody_afterwards(
    pair: tuple[UnixTransport, UnixTransport], epolls: Epolls
) -> None:
    small, large = pair
    small.post(LARGE, MEGABYTE)
    small.poll(0.0)
    heard: list[list[bytes]] = []
    while not heard:
        heard += [list(frames) for _, frames in large.poll(0.0)]
        small.poll(0.0)
    woken = epolls.wakes[0]
    small.poll(0.0)
    small.post(LARGE, [b"next"])
    rest = _heard(large)
    small.poll(0.0)

    assert (heard, rest, woken > 0) == ([MEGABYTE], [[b"next"]], True)
    assert epolls.wakes[0] - woken <= 1


def _heard(transport: UnixTransport) -> list[list[bytes]]:
    """The letters of the next polls, the first of which takes the caller in."""
    heard: list[list[bytes]] = []
    while not heard:
        heard += [list(frames) for _, frames in transport.poll(1.0)]
    return heard
