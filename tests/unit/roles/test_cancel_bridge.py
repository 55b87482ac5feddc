"""A uid crosses from postprocessing to the router."""

from __future__ import annotations

import queue
import threading

from python_backend.roles.cancel_bridge import CancelListener, CancelTeller, bridge_endpoint
from python_backend.transport.base import Frames, Peer


class FakeTransport:
    def __init__(self) -> None:
        self.posted: list[tuple[Peer, Frames]] = []
        self.letters: queue.Queue[list[tuple[Peer, Frames]]] = queue.Queue()
        self.is_closed = False

    def post(self, peer: Peer, frames: Frames) -> bool:
        self.posted.append((peer, frames))
        return True

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        return self.letters.get(timeout=5)

    def wake(self) -> None:
        self.letters.put([])

    def close(self) -> None:
        self.is_closed = True


def test_what_the_teller_says_the_listener_hears() -> None:
    sent, received = FakeTransport(), FakeTransport()
    teller = CancelTeller(sent, "router")
    heard: list[int] = []
    done = threading.Event()

    def hear(uid: int) -> None:
        heard.append(uid)
        if uid == 1:
            done.set()

    listener = CancelListener(received, hear)
    listener.start()
    for uid in (2**64 - 1, 1):
        teller.tell(uid)
    assert {peer for peer, _ in sent.posted} == {Peer(bridge_endpoint("router"))} == {"router.cancel"}
    received.letters.put([(Peer("x"), [b"short"]), (Peer("x"), [])])
    received.letters.put([(Peer("x"), frames) for _, frames in sent.posted])
    assert done.wait(5)
    listener.stop()
    teller.stop()
    assert (heard, sent.is_closed, received.is_closed) == ([2**64 - 1, 1], True, True)
