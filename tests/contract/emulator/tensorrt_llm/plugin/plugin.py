"""The workspace of the all-reduce; its buffers must outlive every step."""

from __future__ import annotations

import weakref

import torch

from tensorrt_llm.mapping import Mapping

POINTERS_PER_RANK, POINTERS_OF_COUNTER = 7, 3
alive: weakref.WeakValueDictionary[int, IpcMemory] = weakref.WeakValueDictionary()
"""By the number that stands for its pointer."""


class IpcMemory:
    """One buffer that the ranks share."""


class CustomAllReduceHelper:
    @staticmethod
    def max_workspace_size_auto(tp_size: int) -> int:
        return 16_000_000 if tp_size <= 2 else 8_000_000

    @staticmethod
    def allocate_workspace(mapping: Mapping, size: int) -> tuple[list[IpcMemory], torch.Tensor]:
        assert size > 0
        buffers = [IpcMemory() for _ in range(POINTERS_PER_RANK)]
        count = POINTERS_PER_RANK * mapping.tp_size + POINTERS_OF_COUNTER
        pointers = [id(buffers[index % len(buffers)]) for index in range(count)]
        alive.update({id(buffer): buffer for buffer in buffers})
        return buffers, torch.tensor(pointers, dtype=torch.int64)
