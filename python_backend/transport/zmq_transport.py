"""Frames between processes of one host over ZeroMQ ipc sockets.

Owns one PULL socket that everybody may push to and one PUSH socket per peer, connected on first use.
Must never block a sender: a full queue is an answer, not a wait. The invariant: frames from one live
process to another arrive once and in order; neither has to start first (a queue fills meanwhile).
ZeroMQ gives no sign of death for this pattern, so the loops beat.
"""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path

import zmq

from python_backend.transport.base import Frames, Peer
from python_backend.transport.directory import socket_path
from router_backend.core.errors import ConfigError
from router_backend.handoff.codec import FRAME_BYTES_MAX

QUEUE_MAX = 100_000
"""Messages waiting per peer before `post` says no: seconds of the busiest traffic."""
RECONNECT_MS = 20
POLL_MAX = 1024
"""Most messages handed out by one poll, so that a flood cannot keep a loop from its other duties."""


class ZmqTransport:
    """The endpoint `name` in `folder` (made by `open_run_dir`)."""

    def __init__(
        self, folder: Path, name: str, queue_max: int = QUEUE_MAX, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self._folder = folder
        self._name = name.encode()
        self._queue_max = queue_max
        self._path = socket_path(folder, name)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pushes: dict[Peer, zmq.Socket[bytes]] = {}
        self._posting = threading.Lock()
        """A socket may change threads, but only behind a fence: zmq(7), "Thread safety"."""
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pull = self._socket(zmq.PULL)
        # A longer frame is not even read into memory: ZeroMQ cuts its sender off, which then connects anew.
        self._pull.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max)
        try:
            self._bind()
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(f"run_dir: cannot bind {self._path}: {error.strerror}") from error
        self._poller = zmq.Poller()
        self._poller.register(self._pull, zmq.POLLIN)
        self._poller.register(self._wake_fd, zmq.POLLIN)

    def post(self, peer: Peer, frames: Frames) -> bool:
        try:
            with self._posting:
                self._push(peer).send_multipart([self._name, *frames], zmq.NOBLOCK, copy=True)
        except (zmq.Again, ConfigError):
            return False
        return True

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        ready = dict(self._poller.poll(math.ceil(max(0.0, timeout_s) * 1000.0)))
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        return self._arrived() if self._pull in ready else []

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def close(self) -> None:
        """Drop what is queued and remove the socket file."""
        for socket in [self._pull, *self._pushes.values()]:
            socket.close(0)
        self._context.term()
        self._path.unlink(missing_ok=True)
        os.close(self._wake_fd)

    def _bind(self) -> None:
        self._path.unlink(missing_ok=True)
        self._pull.bind(f"ipc://{self._path}")
        self._path.chmod(0o600)

    def _push(self, peer: Peer) -> zmq.Socket[bytes]:
        socket = self._pushes.get(peer)
        if socket is None:
            path = socket_path(self._folder, peer)
            socket = self._pushes[peer] = self._socket(zmq.PUSH)
            socket.connect(f"ipc://{path}")
        return socket

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(self._queue_max)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 0)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        return socket

    def _arrived(self) -> list[tuple[Peer, Frames]]:
        arrived: list[tuple[Peer, Frames]] = []
        # Asking is cheaper than being told by an exception that there is no more.
        while len(arrived) < POLL_MAX and int(self._pull.get(zmq.EVENTS)) & zmq.POLLIN:
            sender, *frames = self._pull.recv_multipart(zmq.NOBLOCK)
            arrived.append((Peer(sender.decode(errors="replace")), frames))
        return arrived
