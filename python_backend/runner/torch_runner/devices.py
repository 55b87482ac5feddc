"""What a device has, and whether it is there.

Answers are the same in every process of a server, however much of the device is already taken: totals, never
what happens to be free. Imports torch only when it is asked about a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from router_backend.core.errors import ConfigError

CPU = "cpu"
LARGE_PAGES_KEY = "THP_MEM_ALLOC_ENABLE"
CPU_SHARE, GPU_SHARE = 0.5, 0.9
"""Of the total, what `auto` gives to models: a server's other processes and pages need the rest."""
MEMORY_INFO = Path("/proc/meminfo")
GROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def usable_bytes(device: str) -> int:
    """What `memory_budget: auto` means; ConfigError where the device is not there."""
    if device != CPU:
        return int(GPU_SHARE * _gpu_bytes(device))
    limits = [_machine_bytes(MEMORY_INFO.read_text()), *_group_bytes(GROUP_LIMITS)]
    return int(CPU_SHARE * min(limits))


def ask_for_large_pages() -> None:
    """Let torch lay tensors out in large pages; it looks once, at its first allocation.

    A step reads keys and values all over the pool: in pages of 4 KiB, finding them takes a tenth of its time.
    """
    os.environ.setdefault(LARGE_PAGES_KEY, "1")


def refuse_absent(device: str) -> None:
    """ConfigError, with the cure, for a GPU that torch cannot use."""
    if device == CPU:
        return
    import torch

    if not torch.cuda.is_available():
        built = torch.version.cuda
        missing = f"torch {torch.__version__} is built without CUDA"
        why = f"no GPU is visible (CUDA {built})" if built else missing
        raise ConfigError(f"device: {device}: {why}; install PyTorch's CUDA build, or set device: cpu")
    index, count = gpu_index(device), torch.cuda.device_count()
    if index >= count:
        raise ConfigError(f"device: {device}: this machine has {count} GPU(s), numbered from 0")


def gpu_index(device: str) -> int:
    """`cuda` is the first one, and so is `cpu` for an engine that is on GPUs only."""
    return int(device.partition(":")[2] or 0)


def _gpu_bytes(device: str) -> int:
    refuse_absent(device)
    import torch

    return int(torch.cuda.get_device_properties(gpu_index(device)).total_memory)


def _machine_bytes(text: str) -> int:
    line = next(line for line in text.splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) << 10


def _group_bytes(paths: Iterable[Path]) -> list[int]:
    """Limits of the control group; a number as large as memory itself can be is the old way to say none."""
    texts = [path.read_text().strip() for path in paths if path.exists()]
    return [int(text) for text in texts if text.isdigit()]
