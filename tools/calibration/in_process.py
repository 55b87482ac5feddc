"""A deployment in this process: the real front, schedulers and engines, over a transport of queues.

For tools that must ask many questions and start no server. Answers are those of the server; speed is not:
all models share this interpreter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from python_backend.config import Deployment
from python_backend.loops.base import Ask, Finish, Piece
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.engine import build_runner
from python_backend.roles.front import Front
from python_backend.roles.interpreter import settle
from python_backend.roles.subserver import Subserver
from python_backend.transport.loopback_transport import LoopbackNetwork
from router_backend.core.errors import RouterError

FRONT = "front"
BOUND_S = 600.0
"""Longest wait for anything: a deployment that is slower than this has stopped."""
LOOK_S = 0.005


class Client:
    """The port of one request; collects its answer."""

    def __init__(self, seats: threading.Semaphore) -> None:
        self._seats = seats
        self._pieces: list[Piece] = []

    def put(self, piece: Piece) -> None:
        self._pieces.append(piece)
        if piece.finish:
            self._seats.release()

    @property
    def unsent(self) -> int:
        """Everything put here is taken at once."""
        return 0

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self._pieces)

    @property
    def sources(self) -> list[int]:
        """Index of the model that wrote each token."""
        return [source for piece in self._pieces for source in piece.sources]

    @property
    def finish(self) -> Finish:
        """How it ended; RouterError when it ended by one."""
        finish = self._pieces[-1].finish
        assert finish is not None, "asked before the end"
        if finish.code:
            raise RouterError(f"{finish.code}: {finish.message}")
        return finish


class LocalDeployment:
    """`with LocalDeployment(deployment, repository) as local: local.answers(asks, at_once=8)`."""

    def __init__(self, deployment: Deployment, repository: Path) -> None:
        """Loads every model; ConfigError says what does not fit together."""
        agreement = read_agreement(deployment, repository)
        network = LoopbackNetwork()
        self._subservers = []
        for name in deployment.subservers:
            runner = build_runner(deployment, name, repository, agreement)
            transport = network.endpoint(name)
            self._subservers.append(Subserver(deployment, name, runner, transport, agreement))
        self._front = Front(deployment, repository, FRONT, network.endpoint(FRONT))

    def __enter__(self) -> LocalDeployment:
        settle()
        for part in (*self._subservers, self._front):
            part.start()
        peers = len(self._subservers) - 1
        _wait(lambda: self._front.picture().is_ready, "the front to hear the models")
        for subserver in self._subservers:
            _wait(lambda s=subserver: s.snapshot().get("peers_up") == peers, "the models to hear each other")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for part in (self._front, *reversed(self._subservers)):
            part.stop()

    def answers(self, asks: Sequence[Ask], at_once: int) -> list[Client]:
        """One client per ask, all answered, never more than `at_once` open."""
        seats = threading.Semaphore(at_once)
        clients = [Client(seats) for _ in asks]
        for ask, client in zip(asks, clients, strict=True):
            _take(seats)
            self._front.submit(ask, client)
        for _ in range(at_once):
            _take(seats)
        return clients


def _take(seats: threading.Semaphore) -> None:
    if not seats.acquire(timeout=BOUND_S):
        raise RouterError(f"no request ended within {BOUND_S:g} s")


def _wait(condition: Callable[[], bool], what: str) -> None:
    give_up, pause = time.monotonic() + BOUND_S, threading.Event()
    while not condition():
        if time.monotonic() > give_up:
            raise RouterError(f"waited {BOUND_S:g} s for {what}")
        pause.wait(LOOK_S)
