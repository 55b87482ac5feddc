"""Ranks of an MPI job hear rank 0's plan through MPI itself, as their engines' collectives do.

Contract-tested; unverified on hardware until tools.check_trtllm has run. `comm` is what
`tensorrt_llm._utils.mpi_comm()` answers, an mpi4py communicator; only its buffer calls are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class MpiCommunicator:
    """A `ranks.base.Communicator`."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())

    def broadcast(self, frame: bytes | None) -> bytes:
        """First how long the frame is, then the frame."""
        size = np.array([len(frame or b"")], np.int64)
        self._comm.Bcast(size, root=0)
        words = np.empty(int(size[0]), np.uint8)
        if frame:
            words[:] = np.frombuffer(frame, np.uint8)
        if len(words):
            self._comm.Bcast(words, root=0)
        return words.tobytes()

    def close(self) -> None:
        """MPI ends with its processes."""
