"""CPU seconds and memory of a system's processes, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """`cpu_s` since the first look; `peak_rss_mb` is the sum of every process's own peak."""

    cpu_s: float
    peak_rss_mb: float


def usage(pids: Sequence[int]) -> Usage:
    """Of these processes and all that they started, threads and ended children included."""
    found = list(family(pids))
    return Usage(sum(map(_cpu_s, found)), sum(map(_peak_mb, found)))


def since(before: Usage, now: Usage) -> Usage:
    return Usage(now.cpu_s - before.cpu_s, now.peak_rss_mb)


def family(pids: Sequence[int]) -> Iterable[int]:
    """`pids` and their living descendants, each once."""
    parents = {int(path.name): _parent(path) for path in PROC.iterdir() if path.name.isdigit()}
    found = set(pids)
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return sorted(found)


def _stat(pid: int) -> list[str]:
    """The fields of proc(5)'s stat after the name, which may hold anything; none of one that has gone."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _parent(path: Path) -> int:
    fields = _stat(int(path.name))
    return int(fields[1]) if fields else -1


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) / _TICKS_PER_S


def _peak_mb(pid: int) -> float:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
