"""Where endpoints listen and how they are reached: socket files of one host, or addresses of several.

Owns addresses and the security of single sockets. Must never read or post a message. The invariant: a
socket that leaves the host is encrypted and knows whom it talks to, unless the deployment says `insecure`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import zmq

from python_backend.transport.base import Peer
from python_backend.transport.directory import socket_path
from python_backend.transport.keyring import Keyring
from router_backend.core.errors import ConfigError

ZAP_DOMAIN = b"token_router"
RECONNECT_MS, RECONNECT_MS_MAX = 20, 1000
HEARTBEAT_MS, SILENCE_MS_MAX = 500, 3000
"""A connection over which nothing comes back is made anew, instead of waiting for TCP to give it up: that
takes minutes after a cable was out."""


class Wiring(Protocol):
    """How the sockets of one endpoint are connected; ConfigError for what cannot be."""

    @property
    def keyring(self) -> Keyring | None:
        """What proves who a peer is; None where the place itself does."""
        ...

    def listen(self, pull: zmq.Socket[bytes], name: str) -> None: ...

    def reach(self, push: zmq.Socket[bytes], peer: Peer) -> None: ...

    def leave(self, name: str) -> None:
        """Remove what `listen` left in the file system."""
        ...


@dataclass(frozen=True, slots=True)
class IpcWiring:
    """One socket file per endpoint in a folder that only this user may enter (made by `open_run_dir`)."""

    folder: Path

    @property
    def keyring(self) -> None:
        return None

    def listen(self, pull: zmq.Socket[bytes], name: str) -> None:
        path = socket_path(self.folder, name)
        try:
            path.unlink(missing_ok=True)
            pull.bind(f"ipc://{path}")
            path.chmod(0o600)
        except zmq.ZMQError as error:
            raise ConfigError(f"run_dir: cannot bind {path}: {error.strerror}") from error

    def reach(self, push: zmq.Socket[bytes], peer: Peer) -> None:
        path = socket_path(self.folder, peer)
        push.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        push.connect(f"ipc://{path}")

    def leave(self, name: str) -> None:
        socket_path(self.folder, name).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class TcpWiring:
    """`addresses` is host:port by endpoint; with a `keyring` every connection is CURVE (curvezmq.org).

    A host's name is looked up at every attempt to connect, so it need not be known yet, and may move.
    """

    addresses: Mapping[str, str]
    keyring: Keyring | None = None
    listening: Mapping[str, str] = field(default_factory=dict)
    """Where an endpoint listens, if not at its address."""

    def listen(self, pull: zmq.Socket[bytes], name: str) -> None:
        key = "listen" if name in self.listening else "addresses"
        address = self.listening.get(name) or self._address(name)
        _steady(pull)
        if self.keyring is not None:
            pull.curve_server = True
            pull.curve_secretkey = self.keyring.secret
            pull.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
        try:
            pull.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            raise ConfigError(_cannot_bind(f"{key}.{name}", address, error)) from error

    def reach(self, push: zmq.Socket[bytes], peer: Peer) -> None:
        address = self._address(peer)
        _steady(push)
        if self.keyring is not None:
            push.curve_serverkey = self.keyring.public_key(peer)
            push.curve_secretkey = self.keyring.secret
            push.curve_publickey = self.keyring.public_key(self.keyring.name)
        push.connect(f"tcp://{address}")

    def leave(self, name: str) -> None:
        """Nothing of it is in the file system."""

    def _address(self, endpoint: str) -> str:
        if endpoint not in self.addresses:
            raise ConfigError(f"addresses: {endpoint!r} is missing: give its host:port")
        return self.addresses[endpoint]


def _cannot_bind(key: str, address: str, error: zmq.ZMQError) -> str:
    """With the cure where the host is none of this machine's."""
    is_elsewhere = error.errno in (errno.EADDRNOTAVAIL, errno.ENODEV)
    cure = ": give an address of this machine under listen (0.0.0.0 for all of them)" if is_elsewhere else ""
    return f"{key}: cannot bind {address}: {error.strerror}{cure}"


def _steady(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS_MAX)
