"""How the ranks of one engine add up what each has computed of a layer.

Queries, keys, values, gate and up are cut by outputs, the two projections back by inputs: each rank then
holds a summand of the layer's result, and one sum over all ranks follows each of the two. The embedding and
the head are whole on every rank; rank 0 alone reads logits. gloo on CPUs; NCCL on GPUs, which has not run: no
GPU was at hand.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

WAIT_S_MAX = 300.0
"""A rank that waits longer for another gives up, and ends."""


class Collective(Protocol):
    """The ranks of one engine, as one of them sees them."""

    rank: int
    size: int

    def summed(self, part: Tensor) -> Tensor:
        """The sum of every rank's `part`, the same on all of them; may overwrite it."""
        ...


class Alone:
    """An engine of one process."""

    rank, size = 0, 1

    def summed(self, part: Tensor) -> Tensor:
        return part


class ProcessGroup:
    """Ranks that are processes; they meet over a file in `folder`, private to the engine."""

    def __init__(self, folder: Path, rank: int, size: int, device: str) -> None:
        self.rank, self.size = rank, size
        # All ranks are on this host, and nobody outside of it is to connect.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group(
            "gloo" if device == "cpu" else "nccl",
            init_method=f"file://{folder / 'collective'}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=WAIT_S_MAX),
        )

    def summed(self, part: Tensor) -> Tensor:
        whole = part.contiguous()
        dist.all_reduce(whole)
        return whole

    def close(self) -> None:
        dist.destroy_process_group()


def rank_device(device: str, rank: int) -> torch.device:
    """Where a rank lives: on the CPU with the others, or on a GPU of its own from `device` on."""
    if device == "cpu":
        return torch.device(device)
    return torch.device("cuda", int(device.partition(":")[2] or 0) + rank)
