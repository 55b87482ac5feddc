"""Watches a running server and revives models whose process died or fell silent.

Looks, lets `Revival` decide, and carries out. Must never end the server itself. Every step is said on one
line, so that a person can follow what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tools.serving.admin import AdminError
from tools.serving.revival import Revival, Sight, Step


class WatchedServer(Protocol):
    """What is asked of `TritonServer`."""

    def stubs(self) -> Mapping[str, int]:
        """Process id of each model's Python process, by model name."""
        ...


class Administrator(Protocol):
    """What is asked of `Admin`."""

    def load(self, model: str) -> None: ...

    def unload(self, model: str) -> None: ...

    def peers_up(self) -> Mapping[str, bool]: ...


class Supervisor:
    """`models` are those that have a process of their own."""

    def __init__(
        self, server: WatchedServer, admin: Administrator, models: Iterable[str], say: Callable[[str], None]
    ) -> None:
        self._server = server
        self._admin = admin
        self._models = tuple(models)
        self._say = say
        self._revival = Revival()
        self._returning: set[str] = set()

    def turn(self, now: float) -> None:
        """One look and what follows from it; seconds on any steady clock."""
        sights = self._sights()
        self._welcome({name for name, sight in sights.items() if sight is Sight.UP})
        for name, step in self._revival.steps(sights, now):
            if step is Step.UNLOAD:
                self._unload(name)
            else:
                self._load(name, now)

    def _sights(self) -> dict[str, Sight]:
        try:
            processes, heard = self._server.stubs(), self._admin.peers_up()
        except (OSError, AdminError):
            return {}  # a process ended while it was looked at, or the server is busy: look again next turn
        return {name: _sight(name, processes, heard) for name in self._models}

    def _welcome(self, up: set[str]) -> None:
        """A loaded model is back once its peers hear it, a moment after Triton calls it ready."""
        for name in sorted(self._returning & up):
            self._say(f"{name}: back")
        self._returning -= up

    def _unload(self, name: str) -> None:
        self._say(f"{name}: its process is gone or silent; taking the model out")
        try:
            self._admin.unload(name)
        except AdminError as error:
            self._say(f"{name}: could not be unloaded: {error}")

    def _load(self, name: str, now: float) -> None:
        try:
            self._admin.load(name)
        except AdminError as error:
            self._say(f"{name}: could not be loaded, trying again later: {error}")
            self._revival.refused(name, now)
        else:
            self._returning.add(name)
            self._revival.loaded(name, now)


def _sight(name: str, processes: Mapping[str, int], heard: Mapping[str, bool]) -> Sight:
    if name not in processes:
        return Sight.GONE
    return Sight.UP if heard.get(name, True) else Sight.SILENT
