"""The ensemble's last step: renames the text, and hears when the client has gone.

Stateless: the router detokenised already, so nothing here depends on the order of responses. It must never
answer with an error, not even to a cancelled request: the ensemble's request would never finish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from python_backend.roles.cancel_bridge import CancelTeller
from python_backend.roles.place import Place, socket_dir
from python_backend.server.ensemble import answer, is_cancelled
from python_backend.server.outputs import Arrays
from python_backend.server.wire import input_arrays
from python_backend.transport.unix_transport import UnixTransport

KNOWN_MAX = 10_000


class Teller(Protocol):
    def tell(self, uid: int) -> None: ...

    def stop(self) -> None: ...


class Postprocessing:
    """Asks Triton about each request's client at most every `poll_s`: the question costs 50 us."""

    def __init__(self, teller: Teller, poll_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._teller = teller
        self._poll_s = poll_s
        self._clock = clock
        self._asked_at: dict[int, float] = {}

    def start(self) -> None:
        """Nothing runs between requests."""

    def stop(self) -> None:
        self._teller.stop()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        return [answer(request, self._step) for request in requests]

    def _step(self, request: Any) -> Arrays:
        tensors = input_arrays(request)
        uid = int(tensors["REQUEST_UID"].flat[0])
        if self._is_due(uid) and is_cancelled(request):
            self._teller.tell(uid)
        return {"OUTPUT": tensors["TEXT"]}

    def _is_due(self, uid: int) -> bool:
        now = self._clock()
        if now - self._asked_at.get(uid, -self._poll_s) < self._poll_s:
            return False
        if len(self._asked_at) >= KNOWN_MAX:
            self._asked_at.clear()
        self._asked_at[uid] = now
        return True


def postprocessing(place: Place) -> Postprocessing:
    deployment = place.deployment()
    transport = UnixTransport(socket_dir(deployment), place.instance)
    teller = CancelTeller(transport, place.parameter("router", "router"))
    return Postprocessing(teller, deployment.front.cancel_poll_ms / 1000)
