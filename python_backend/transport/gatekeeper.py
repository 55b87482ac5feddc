"""Who may connect over TCP: the endpoint's answer to every CURVE handshake.

Speaks ZAP (rfc.zeromq.org/spec/27) inside its transport's own poll, so it needs no thread. Owns the count of
those that were turned away. The invariant: a message is handed out only under the name whose key its
connection proved.
"""

from __future__ import annotations

import logging
from collections.abc import Container

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from python_backend.transport.keyring import Keyring

_log = logging.getLogger(__name__)

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
ZAP_VERSION = b"1.0"
KEY_FRAME = 6
"""Of a ZAP request: version, id, domain, address, identity, mechanism, public key."""
FAILURES = (
    zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
)


class Gatekeeper:
    """Of one listening socket, which is not bound yet; its thread alone calls it."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], pull: zmq.Socket[bytes], ring: Keyring
    ) -> None:
        self.refused = 0
        self._ring = ring
        self._pull = pull
        self._zap = context.socket(zmq.REP)
        self._zap.bind(ZAP_ENDPOINT)
        self._monitor: zmq.Socket[bytes] = pull.get_monitor_socket(FAILURES)

    def register(self, poller: zmq.Poller) -> None:
        for socket in (self._zap, self._monitor):
            poller.register(socket, zmq.POLLIN)

    def attend(self, ready: Container[object]) -> None:
        """Answer the handshakes and count the failures that a poll found."""
        if self._zap in ready:
            self._answer(self._zap.recv_multipart())
        if self._monitor in ready:
            recv_monitor_message(self._monitor)
            self._turn_away("a connection that could not prove a known key")

    def admits(self, claimed: str, frame: zmq.Frame) -> bool:
        """Does the connection that brought `frame` belong to the endpoint that it claims to be."""
        if frame.get("User-Id") == claimed:
            return True
        self._turn_away(f"a message in the name of {claimed!r} by {frame.get('User-Id')!r}")
        return False

    def close(self) -> None:
        self._pull.disable_monitor()
        self._monitor.close(0)
        self._zap.close(0)

    def _answer(self, request: list[bytes]) -> None:
        key = z85.encode(request[KEY_FRAME]) if len(request) > KEY_FRAME else b""
        name = self._ring.owner(key)
        status, text = (b"400", b"unknown key") if name is None else (b"200", b"OK")
        self._zap.send_multipart([ZAP_VERSION, request[1], status, text, (name or "").encode(), b""])

    def _turn_away(self, what: str) -> None:
        self.refused += 1
        if self.refused == 1:
            _log.error("%s: turned away %s (later ones are only counted)", self._ring.name, what)
