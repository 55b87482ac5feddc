"""A whole deployment in one process: a front and real subservers over the loopback transport.

Clients are a closed loop of a chosen width, so that the number of requests at once is exact. Every
hand-off is noted as it is posted, in the frames in which it travels.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from python_backend.config import Deployment
from python_backend.loops.base import Ask, Finish, Piece
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.engine import build_runner
from python_backend.roles.front import Front
from python_backend.roles.subserver import Subserver
from python_backend.transport.base import Frames, Peer
from python_backend.transport.loopback_transport import LoopbackNetwork, LoopbackTransport
from router_backend.core.request import RequestId
from router_backend.handoff.codec import unpack
from router_backend.handoff.message import Handoff

BOUND_S = 120.0
FRONT = "front"

Figures = dict[str, Any]


class Client:
    """The port of one request; says when its answer is complete."""

    def __init__(self, has_ended: threading.Semaphore) -> None:
        self.request_id = RequestId("")
        self.pieces: list[Piece] = []
        self.unsent = 0
        self._has_ended = has_ended

    def put(self, piece: Piece) -> None:
        self.pieces.append(piece)
        if piece.finish:
            self._has_ended.release()

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def tokens(self) -> list[int]:
        return [token for piece in self.pieces for token in piece.token_ids]

    @property
    def authors(self) -> list[int]:
        return [model for piece in self.pieces for model in piece.sources]

    @property
    def finish(self) -> Finish:
        (finish,) = [piece.finish for piece in self.pieces if piece.finish]
        assert self.pieces[-1].finish is finish, "a piece came after the last"
        return finish


@dataclass
class Tapped:
    """A transport that notes the hand-offs posted through it."""

    inner: LoopbackTransport
    handoffs: list[Handoff]

    def post(self, peer: Peer, frames: Frames) -> bool:
        messages = [unpack(frames[start : start + 2]) for start in range(0, len(frames), 2)]
        self.handoffs += [message for message in messages if isinstance(message, Handoff)]
        return self.inner.post(peer, frames)

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        return self.inner.poll(timeout_s)

    def wake(self) -> None:
        self.inner.wake()

    def forget(self, peer: Peer) -> None:
        self.inner.forget(peer)

    @property
    def refused(self) -> int:
        return self.inner.refused

    def close(self) -> None:
        self.inner.close()


@dataclass
class RoutedSystem:
    """`with RoutedSystem(deployment, repository) as system: system.answers(asks, at_once=8)`."""

    deployment: Deployment
    repository: Path
    handoffs: list[Handoff] = field(default_factory=list)
    """All of them, each model's in the order in which it posted them."""

    def __enter__(self) -> RoutedSystem:
        network = LoopbackNetwork()
        self.front = Front(self.deployment, self.repository, FRONT, network.endpoint(FRONT))
        agreement = read_agreement(self.deployment, self.repository)
        self.subservers = []
        for name in self.deployment.names:
            runner = build_runner(self.deployment, name, self.repository, agreement)
            transport = Tapped(network.endpoint(name), self.handoffs)
            self.subservers.append(Subserver(self.deployment, name, runner, transport, agreement))
        for part in (*self.subservers, self.front):
            part.start()
        self._wait(lambda: self.front.picture().is_ready, "the front to hear all models")
        peers = len(self.subservers) - 1
        all_up = [peers] * len(self.subservers)
        self._wait(lambda: self.figure("peers_up") == all_up, "the models to hear each other")
        return self

    def __exit__(self, *_: object) -> None:
        for part in (self.front, *reversed(self.subservers)):
            part.stop()

    def answers(self, asks: Sequence[Ask], at_once: int) -> list[Client]:
        """One client per ask, all answered, never more than `at_once` open."""
        seats = threading.Semaphore(at_once)
        clients = [Client(seats) for _ in asks]
        for ask, client in zip(asks, clients, strict=True):
            assert seats.acquire(timeout=BOUND_S), "no request ended"
            client.request_id = self.front.submit(ask, client)
        for _ in range(at_once):
            assert seats.acquire(timeout=BOUND_S), "the last requests do not end"
        return clients

    def figure(self, name: str) -> list[Any]:
        """One figure of each model, as last published."""
        return [subserver.snapshot().get(name, 0) for subserver in self.subservers]

    def settled_figures(self) -> list[Figures]:
        """Each model's figures once it holds nothing of any request."""
        stale = [subserver.snapshot() for subserver in self.subservers]

        def is_settled() -> bool:
            is_fresh = all(s.snapshot() is not old for s, old in zip(self.subservers, stale, strict=True))
            busy = (self.figure(name) for name in ("live", "ready", "executing", "parked"))
            return is_fresh and not any(map(sum, busy))

        self._wait(is_settled, "both models to be empty")
        return [dict(subserver.snapshot()) for subserver in self.subservers]

    def _wait(self, condition: Any, what: str) -> None:
        give_up, pause = time.monotonic() + BOUND_S, threading.Event()
        while not condition():
            assert time.monotonic() < give_up, f"waited {BOUND_S} s for {what}"
            pause.wait(0.005)
