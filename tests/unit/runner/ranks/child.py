"""One rank of a made-up engine, as a process: `python child.py FOLDER SCRIPT SOCKET`.

Its tokens say what it was fed; it notes every step of its own in FOLDER. With SCRIPT `refuse` it does not
load. A row that sums to 13 fails on rank 0; at 99 rank 1 dies and rank 0 waits for it, as in a collective.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np

from python_backend.runner.base import RunnerInfo
from python_backend.runner.ranks.frames import pack_feed
from python_backend.runner.ranks.launching import RANK
from python_backend.runner.ranks.local_communicator import LocalCommunicator
from python_backend.runner.ranks.worker import refuse, serve
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.scheduler.batch import BatchPlan, StepOutput

INFO = RunnerInfo(100, 50, 8, 4, frozenset({7, 8}), 16)


class Noting:
    """The engine of one rank."""

    info = INFO

    def __init__(self, note: Path, rank: int) -> None:
        self._note = note
        self._rank = rank

    def execute(self, plan: BatchPlan) -> StepOutput:
        with self._note.open("ab") as file:
            file.write(pack_feed(plan))
        fed = [sum(row.token_ids) for row in plan.rows if row.is_sampling]
        if 99 in fed and self._rank == 1:
            os._exit(3)
        if 99 in fed:
            threading.Event().wait(60)
        if 13 in fed and self._rank == 0:
            raise RunnerError("thirteen")
        return StepOutput(np.array(fed), scores={"seen": np.float32([len(plan.rows)])})

    def close(self) -> None:
        self._note.with_suffix(".closed").touch()


def main(folder: Path, is_refusing: bool, socket_path: str) -> None:
    if is_refusing:
        if os.environ[RANK] == "0":
            refuse(socket_path, ConfigError("no engine here"))
        return
    communicator = LocalCommunicator.of(os.environ, folder)
    serve(Noting(folder / f"rank{communicator.rank}", communicator.rank), communicator, socket_path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "refuse", sys.argv[3])
