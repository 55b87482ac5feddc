"""The seams of an engine that spans processes: how ranks talk, how they are started and watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Communicator(Protocol):
    """Joins the ranks of one engine. Every rank makes the same calls in the same order."""

    rank: int
    size: int

    def broadcast(self, frame: bytes | None) -> bytes:
        """Rank 0's frame, on every rank; the others pass None. `ConnectionError` when a rank is gone."""
        ...

    def close(self) -> None: ...


class Workers(Protocol):
    """The processes of one engine."""

    def failure(self) -> str | None:
        """Which process ended and how; None while all of them live. Never blocks."""
        ...

    def stop(self) -> None:
        """End all of them, after a moment in which they may end by themselves."""
        ...


class Launcher(Protocol):
    """Starts one process per rank."""

    def launch(self, command: Sequence[str], environment: Mapping[str, str]) -> Workers:
        """The same command in each; ConfigError if it cannot be started at all."""
        ...
