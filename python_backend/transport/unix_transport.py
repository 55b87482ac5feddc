"""Frames between processes of one host over Unix stream sockets.

Owns one listening socket and one connection to every peer that was ever written to. Must never block a
sender: what the kernel does not take waits here, and a full queue is an answer. The invariant: letters
from one live process to another arrive once and in order; neither has to start first.

A hand-off is short, so what it costs is threads that have to wake up. ZeroMQ's ipc wakes three on the
way (its own on either side, then the reader); here the deciding thread writes into the peer's socket and
only the reader wakes: `python -m tools.bench_handoff` shows both.
"""

from __future__ import annotations

import logging
import math
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from python_backend.transport.base import Frames, Peer
from python_backend.transport.directory import socket_path
from python_backend.transport.letters import Letterbox, LetterError, packed
from router_backend.core.errors import ConfigError
from router_backend.handoff.codec import FRAME_BYTES_MAX

_log = logging.getLogger(__name__)

QUEUE_MAX = 100_000
"""Letters waiting per peer before `post` says no: seconds of the busiest traffic."""
RECONNECT_S = 0.02
READ_BYTES = 1 << 16
"""Most bytes taken from one peer in one poll, so that a flood cannot keep a loop from its other duties."""
CALLERS_WAITING_MAX = 128


class _Link:
    """The way to one peer: a socket while it listens, and what it has not been given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket: socket.socket | None = None
        self.waiting: deque[bytes] = deque()
        self.given = 0
        """Bytes of the first waiting letter that the kernel has taken."""
        self.is_full = False
        """The peer has to read before it can be given more."""

    def takes(self, letter: bytes) -> bool:
        """Whether the peer took all of `letter` at once, where nothing waits: what a hand-off hopes for. How
        much it took else is in `given`; why, `flush` finds out."""
        if self.socket is None:
            return False
        try:
            self.given = self.socket.send(letter, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        if self.given < len(letter):
            return False
        self.given = 0
        return True

    def flush(self) -> None:
        """Give the peer what it takes of what waits; without a socket afterwards, it does not listen."""
        try:
            self._connect()
            while self.waiting:
                self._give(self.waiting[0])
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        """What was begun is sent again as a whole: half a letter died with its reader."""
        if self.socket is not None:
            self.socket.close()
        self.socket, self.given, self.is_full = None, 0, False

    def _connect(self) -> None:
        if self.socket is None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                opened.connect(str(self.path))
            except OSError as error:
                opened.close()
                raise ConnectionRefusedError(self.path) from error
            self.socket = opened

    def _give(self, letter: bytes) -> None:
        assert self.socket is not None
        self.given += self.socket.send(memoryview(letter)[self.given :], socket.MSG_NOSIGNAL)
        if self.given == len(letter):
            self.waiting.popleft()
            self.given = 0


class UnixTransport:
    """The endpoint `name` in `folder` (made by `open_run_dir`)."""

    def __init__(
        self, folder: Path, name: str, queue_max: int = QUEUE_MAX, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self._folder = folder
        self._name = name.encode()
        self._queue_max = queue_max
        self._frame_bytes_max = frame_bytes_max
        self._path = socket_path(folder, name)
        self._file: tuple[int, int] | None = None
        """The socket file that is ours."""
        self._links: dict[Peer, _Link] = {}
        self._posting = threading.Lock()
        """Held while a link changes."""
        self._callers: dict[int, tuple[socket.socket, Letterbox]] = {}
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._epoll = select.epoll()
        try:
            self._listen()
        except OSError as error:
            self.close()
            raise ConfigError(f"run_dir: cannot bind {self._path}: {error.strerror}") from error
        for fd in (self._wake_fd, self._listener.fileno()):
            self._epoll.register(fd, select.EPOLLIN)

    def post(self, peer: Peer, frames: Frames) -> bool:
        letter = packed([self._name, *frames])
        try:
            with self._posting:
                return self._give(self._link(peer), letter)
        except ConfigError:
            return False

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        arrived: list[tuple[Peer, Frames]] = []
        self._flush_waiting()
        for fd, _ in self._epoll.poll(self._patience_s(timeout_s)):
            if fd in self._callers:
                arrived += self._heard(fd)
            elif fd == self._wake_fd:
                os.eventfd_read(self._wake_fd)
            elif fd == self._listener.fileno():
                self._answer()
        return arrived

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def forget(self, peer: Peer) -> None:
        with self._posting:
            link = self._links.pop(peer, None)
            if link is not None:
                link.close()

    @property
    def refused(self) -> int:
        """Nobody: only this user may enter the folder."""
        return 0

    def close(self) -> None:
        """Drop what is queued and remove the socket file, unless a successor of this process has put its own
        in the place: a model that is loaded again may start before its former process has ended."""
        for link in self._links.values():
            link.close()
        for caller, _ in self._callers.values():
            caller.close()
        self._listener.close()
        self._epoll.close()
        if self._file is not None and self._file == _identity(self._path):
            self._path.unlink(missing_ok=True)
        os.close(self._wake_fd)

    def _listen(self) -> None:
        self._path.unlink(missing_ok=True)
        self._listener.bind(str(self._path))
        self._file = _identity(self._path)
        self._path.chmod(0o600)
        self._listener.listen(CALLERS_WAITING_MAX)

    def _link(self, peer: Peer) -> _Link:
        link = self._links.get(peer)
        if link is None:
            link = self._links[peer] = _Link(socket_path(self._folder, peer))
        return link

    def _give(self, link: _Link, letter: bytes) -> bool:
        if len(link.waiting) >= self._queue_max:
            return False
        if not link.waiting and link.takes(letter):
            return True
        link.waiting.append(letter)
        self._flush(link)
        if link.waiting:
            # The owner of the transport now waits for the peer to read or to listen.
            self.wake()
        return True

    def _flush(self, link: _Link) -> None:
        """Ask to be told when the peer has read, but only while something waits for that: the kernel tells of
        every letter that a peer has read, and each would wake a thread for nothing."""
        was, was_full = link.socket, link.is_full
        link.flush()
        if link.socket is None:
            return
        link.is_full = bool(link.waiting)
        wanted = select.EPOLLET | (select.EPOLLOUT if link.is_full else 0)
        if link.socket is not was:
            self._epoll.register(link.socket, wanted)
        elif link.is_full != was_full:
            self._epoll.modify(link.socket, wanted)

    def _flush_waiting(self) -> None:
        with self._posting:
            for link in self._links.values():
                if link.waiting:
                    self._flush(link)

    def _patience_s(self, timeout_s: float) -> float:
        """At most `timeout_s`, in whole milliseconds: a peer that does not listen is asked again soon."""
        with self._posting:
            if any(link.waiting and link.socket is None for link in self._links.values()):
                timeout_s = min(timeout_s, RECONNECT_S)
        return math.ceil(max(0.0, timeout_s) * 1000.0) / 1000.0

    def _answer(self) -> None:
        try:
            caller, _ = self._listener.accept()
        except BlockingIOError:
            return
        caller.setblocking(False)
        self._callers[caller.fileno()] = caller, Letterbox(self._frame_bytes_max)
        self._epoll.register(caller, select.EPOLLIN)

    def _heard(self, fd: int) -> Iterator[tuple[Peer, Frames]]:
        caller, box = self._callers[fd]
        try:
            data = caller.recv(READ_BYTES)
            box.put(data)
            for sender, *frames in box.take():
                yield Peer(sender.decode(errors="replace")), frames
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        except LetterError as error:
            _log.error("cut off a peer of %s: %s", self._name.decode(), error)
            data = b""
        if not data:
            del self._callers[fd]
            caller.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file this is, whatever it is called; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
