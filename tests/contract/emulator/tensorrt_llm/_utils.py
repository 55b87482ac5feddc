"""Types and the communicator of the emulated MPI job (see `mpirun` beside this package)."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from enum import Enum
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np
import torch

START_S_MAX = 60.0


class DataType(Enum):
    """`tensorrt.DataType`, by torch's names."""

    INT32 = "int32"
    INT64 = "int64"
    HALF = "float16"
    FLOAT = "float32"
    BF16 = "bfloat16"


def torch_dtype_to_trt(dtype: torch.dtype) -> DataType:
    return DataType(str(dtype).removeprefix("torch."))


def trt_dtype_to_torch(dtype: DataType) -> torch.dtype:
    return getattr(torch, dtype.value)


class Comm:
    """The calls of an mpi4py communicator that are used, over Unix sockets; rank 0 is the hub."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._links = _welcomed(folder, size) if rank == 0 else [_connected(folder)]

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return self._size

    def Bcast(self, buf: np.ndarray, root: int = 0) -> None:
        assert root == 0
        if self._rank == 0:
            for link in self._links:
                link.send_bytes(buf.tobytes())
        else:
            told = np.frombuffer(self._links[0].recv_bytes(), buf.dtype)
            assert told.size == buf.size, "ranks disagree about a message's length"
            buf[...] = told.reshape(buf.shape)

    def summed(self, tensor: torch.Tensor) -> torch.Tensor:
        """What NCCL does inside an engine; added in the order of ranks."""
        if self._size == 1:
            return tensor
        if self._rank:
            self._links[0].send_bytes(tensor.numpy().tobytes())
            return _received(self._links[0], tensor)
        total = tensor
        for link in self._links:
            total = total + _received(link, tensor)
        for link in self._links:
            link.send_bytes(total.numpy().tobytes())
        return total


@functools.cache
def mpi_comm() -> Comm:
    size = mpi_world_size()
    folder = Path(os.environ.get("EMULATED_MPI_DIR", "."))
    return Comm(folder, mpi_rank(), size)


def mpi_rank() -> int:
    return int(os.environ.get("EMULATED_MPI_RANK", "0"))


def mpi_world_size() -> int:
    return int(os.environ.get("EMULATED_MPI_SIZE", "1"))


def _received(link: Connection, like: torch.Tensor) -> torch.Tensor:
    flat: Any = torch.frombuffer(bytearray(link.recv_bytes()), dtype=like.dtype)
    assert flat.numel() == like.numel(), "ranks do not run the same step"
    return flat.view(like.shape)


def _welcomed(folder: Path, size: int) -> list[Connection]:
    if size == 1:
        return []
    with Listener(str(folder / "hub"), family="AF_UNIX") as listener:
        links = [listener.accept() for _ in range(size - 1)]
    by_rank = {int(link.recv_bytes()): link for link in links}
    return [by_rank[rank] for rank in sorted(by_rank)]


def _connected(folder: Path) -> Connection:
    give_up = time.monotonic() + START_S_MAX
    while time.monotonic() < give_up:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            link = Client(str(folder / "hub"), family="AF_UNIX")
            link.send_bytes(str(mpi_rank()).encode())
            return link
        time.sleep(0.01)
    raise ConnectionError("rank 0 of the emulated job does not show itself")
