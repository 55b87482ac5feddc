"""Frames between processes over ZeroMQ: ipc sockets of one host, or TCP between several.

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
from python_backend.transport.gatekeeper import Gatekeeper
from python_backend.transport.wiring import IpcWiring, Wiring
from router_backend.core.errors import ConfigError
from router_backend.handoff.codec import FRAME_BYTES_MAX

QUEUE_MAX = 100_000
"""Messages waiting per peer before `post` says no: seconds of the busiest traffic."""
POLL_MAX = 1024
"""Most messages handed out by one poll, so that a flood cannot keep a loop from its other duties."""


class ZmqTransport:
    """The endpoint `name`; a folder (made by `open_run_dir`) stands for the ipc sockets in it."""

    def __init__(
        self,
        wiring: Wiring | Path,
        name: str,
        queue_max: int = QUEUE_MAX,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._wiring: Wiring = IpcWiring(wiring) if isinstance(wiring, Path) else wiring
        self._name = name
        self._queue_max = queue_max
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._pushes: dict[Peer, zmq.Socket[bytes]] = {}
        self._posting = threading.Lock()
        """A socket may change threads, but only behind a fence: zmq(7), "Thread safety"."""
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._pull = self._socket(zmq.PULL)
        # A longer frame is not even read into memory: ZeroMQ cuts its sender off, which then connects anew.
        self._pull.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max)
        ring = self._wiring.keyring
        self._gate = Gatekeeper(self._context, self._pull, ring) if ring else None
        try:
            self._wiring.listen(self._pull, name)
        except ConfigError:
            self.close()
            raise
        self._poller = zmq.Poller()
        self._poller.register(self._pull, zmq.POLLIN)
        self._poller.register(self._wake_fd, zmq.POLLIN)
        if self._gate:
            self._gate.register(self._poller)

    def post(self, peer: Peer, frames: Frames) -> bool:
        try:
            with self._posting:
                self._push(peer).send_multipart([self._name.encode(), *frames], zmq.NOBLOCK, copy=True)
        except (zmq.Again, ConfigError):
            return False
        return True

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        ready = dict(self._poller.poll(math.ceil(max(0.0, timeout_s) * 1000.0)))
        if self._wake_fd in ready:
            os.eventfd_read(self._wake_fd)
        if self._gate:
            self._gate.attend(ready)
        return self._arrived() if self._pull in ready else []

    def wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def forget(self, peer: Peer) -> None:
        with self._posting:
            push = self._pushes.pop(peer, None)
            if push is not None:
                push.close(0)

    @property
    def refused(self) -> int:
        return self._gate.refused if self._gate else 0

    def close(self) -> None:
        """Drop what is queued and leave the place."""
        if self._gate:
            self._gate.close()
        for socket in [self._pull, *self._pushes.values()]:
            socket.close(0)
        self._context.term()
        self._wiring.leave(self._name)
        os.close(self._wake_fd)

    def _push(self, peer: Peer) -> zmq.Socket[bytes]:
        socket = self._pushes.get(peer)
        if socket is None:
            socket = self._socket(zmq.PUSH)
            try:
                self._wiring.reach(socket, peer)
            except ConfigError:
                socket.close(0)
                raise
            self._pushes[peer] = socket
        return socket

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.set_hwm(self._queue_max)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 0)
        return socket

    def _arrived(self) -> list[tuple[Peer, Frames]]:
        arrived: list[tuple[Peer, Frames]] = []
        # Asking is cheaper than being told by an exception that there is no more.
        while len(arrived) < POLL_MAX and int(self._pull.get(zmq.EVENTS)) & zmq.POLLIN:
            try:
                letter = self._next_proved(self._gate) if self._gate else self._next()
            except zmq.Again:
                break  # a long encrypted frame is announced before it is complete
            if letter is not None:
                arrived.append(letter)
        return arrived

    def _next(self) -> tuple[Peer, Frames]:
        sender, *frames = self._pull.recv_multipart(zmq.NOBLOCK)
        return Peer(sender.decode(errors="replace")), frames

    def _next_proved(self, gate: Gatekeeper) -> tuple[Peer, Frames] | None:
        """The next letter, unless it came in another's name."""
        sender, *frames = self._pull.recv_multipart(zmq.NOBLOCK, copy=False)
        name = sender.bytes.decode(errors="replace")
        return (Peer(name), [frame.bytes for frame in frames]) if gate.admits(name, sender) else None
