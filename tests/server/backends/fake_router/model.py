"""A door whose service behaves as a test asks for, by the name in `routing_algorithm`.

Everything between Triton and the `Service` seam is the real thing. Runs inside a stub, where the tests'
package cannot be imported.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from python_backend.loops.base import Ask, Finish, Piece, ResponsePort
from python_backend.model import TritonPythonModel as RealModel
from python_backend.roles.cancel_bridge import CancelListener, bridge_endpoint
from python_backend.roles.door import TONGUES, Door
from python_backend.roles.place import Place, socket_dir
from python_backend.transport.unix_transport import UnixTransport
from router_backend.core.effects import Reason

DONE = Piece(finish=Finish(Reason.LENGTH, prompt_tokens=3, output_tokens=2))


def put(port: ResponsePort, piece: Piece) -> None:
    """As a response of its own: what waits for the sender would leave as one."""
    idle = threading.Event()
    while port.unsent:
        idle.wait(0.0002)
    port.put(piece)


def word(number: int) -> Piece:
    return Piece(text=f"{number} ", token_ids=(number % 100,), sources=(number % 2,), prompt_tokens=3)


def words(ask: Ask, port: ResponsePort) -> None:
    """As many pieces as max_tokens says, as fast as they go."""
    for number in range(ask.max_tokens or 2):
        put(port, word(number))
    put(port, DONE)


def twice(ask: Ask, port: ResponsePort) -> None:
    """Goes on after the end."""
    words(ask, port)
    port.put(DONE)
    port.put(word(7))


def broken_piece(ask: Ask, port: ResponsePort) -> None:
    """One piece that cannot become a tensor."""
    port.put(word(0))
    port.put(Piece(text=None, token_ids=(1,)))  # type: ignore[arg-type]


def broken_submit(ask: Ask, port: ResponsePort) -> None:
    raise ValueError("a secret of ours")


def error_first(ask: Ask, port: ResponsePort) -> None:
    port.put(Piece(finish=Finish(Reason.ERROR, code="TR_PEER_LOST", message="large is gone")))


def error_late(ask: Ask, port: ResponsePort) -> None:
    put(port, word(0))
    put(port, word(1))
    error_first(ask, port)


def silent(ask: Ask, port: ResponsePort) -> None:
    """Says nothing until it is cancelled."""


def one_then_silent(ask: Ask, port: ResponsePort) -> None:
    port.put(word(0))


BEHAVIOURS: dict[str, Callable[[Ask, ResponsePort], None]] = {
    act.__name__: act
    for act in (words, twice, broken_piece, broken_submit, error_first, error_late, silent, one_then_silent)
}


class FakeService:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, ResponsePort] = {}
        self._counts: Counter[str] = Counter(cancels_total=0, submits_total=0)

    def start(self) -> None:
        pass

    def submit(self, ask: Ask, port: ResponsePort) -> int:
        with self._lock:
            self._counts["submits_total"] += 1
            number = self._counts["submits_total"]
            self._open[number] = port
        BEHAVIOURS[ask.policy or "words"](ask, port)
        return number

    def cancel(self, handle: int) -> None:
        with self._lock:
            self._counts["cancels_total"] += 1
            port = self._open.pop(handle)
        port.put(Piece(finish=Finish(Reason.CANCELLED)))

    def snapshot(self) -> Mapping[str, float]:
        with self._lock:
            return {f"fake_{name}": value for name, value in self._counts.items()}

    def stop(self) -> None:
        pass


class TritonPythonModel(RealModel):
    def compose(self, place: Place) -> Door:
        kind = place.required("door")
        door = Door(FakeService(), TONGUES[kind], 0.02, {"door": place.name})
        if kind == "ensemble":
            transport = UnixTransport(socket_dir(place.deployment()), bridge_endpoint(place.name))
            door.listen_for_cancels(CancelListener(transport, door.cancel_uid))
        return door
