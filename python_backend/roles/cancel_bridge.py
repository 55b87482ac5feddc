"""Tells the router that an ensemble's client has gone.

Triton cancels only the steps of an ensemble that start after the cancellation, so the router in the middle
never hears of it; the next postprocessing call does, and says so here. Losing a message costs nothing: the
next response says it again.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

from python_backend.transport.base import HandoffTransport, Peer

_UID = struct.Struct("<Q")


def bridge_endpoint(router: str) -> str:
    """The name under which the model `router` listens for cancellations."""
    return f"{router}.cancel"


class CancelTeller:
    """The postprocessing side. One thread calls it."""

    def __init__(self, transport: HandoffTransport, router: str) -> None:
        self._transport = transport
        self._peer = Peer(bridge_endpoint(router))

    def tell(self, uid: int) -> None:
        self._transport.post(self._peer, [_UID.pack(uid)])

    def stop(self) -> None:
        self._transport.close()


class CancelListener:
    """The router side: a thread that owns the transport and calls `on_cancel(uid)`."""

    def __init__(self, transport: HandoffTransport, on_cancel: Callable[[int], None]) -> None:
        self._transport = transport
        self._on_cancel = on_cancel
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="cancel_bridge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._transport.wake()
        self._thread.join()
        self._transport.close()

    def _run(self) -> None:
        while not self._is_stopping:
            for _, frames in self._transport.poll(1.0):
                if len(frames) == 1 and len(frames[0]) == _UID.size:
                    self._on_cancel(_UID.unpack(frames[0])[0])
