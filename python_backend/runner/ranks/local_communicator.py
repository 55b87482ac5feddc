"""Broadcasts between plain processes of one machine, over Unix sockets in a private folder.

For ranks that need nothing else of each other: the tests' and those whose engine brings its own
collectives. Rank 0 listens, the others connect.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from python_backend.runner.ranks.launching import RANK, RANKS

START_S_MAX = 60.0
TURN_S = 0.01
NAME = "ranks"


class LocalCommunicator:
    """A `Communicator`; `folder` is the same for all ranks and nobody else's."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._links = _welcomed(folder, size) if rank == 0 else [_connected(folder)]

    @classmethod
    def of(cls, environment: Mapping[str, str], folder: Path) -> LocalCommunicator:
        """As `LocalLauncher` told this process."""
        return cls(folder, int(environment[RANK]), int(environment[RANKS]))

    def broadcast(self, frame: bytes | None) -> bytes:
        if self.rank == 0:
            assert frame is not None, "rank 0 has nothing to say"
            for link in self._links:
                link.send_bytes(frame)
            return frame
        try:
            return self._links[0].recv_bytes()
        except EOFError as error:
            raise ConnectionError("rank 0 is gone") from error

    def close(self) -> None:
        for link in self._links:
            link.close()


def _welcomed(folder: Path, size: int) -> list[Connection]:
    if size == 1:
        return []
    with Listener(str(folder / NAME), family="AF_UNIX") as listener:
        return [listener.accept() for _ in range(size - 1)]


def _connected(folder: Path) -> Connection:
    give_up = time.monotonic() + START_S_MAX
    while time.monotonic() < give_up:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return Client(str(folder / NAME), family="AF_UNIX")
        time.sleep(TURN_S)
    raise ConnectionError(f"rank 0 has not shown itself in {START_S_MAX:g} s")
