"""CPU seconds and memory of a system's processes, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.triton_server import stub_model

PROC = Path("/proc")
CLIENT = "client"
"""This process: the load, or the dispatcher of standard serving, or the whole of a system that runs in it."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """`cpu_s` of the system, `cpu_s_by_process` of its processes and, as `client`, of this one."""

    cpu_s: float
    peak_rss_mb: float
    """Sum of every process's own peak."""
    cpu_s_by_process: Mapping[str, float]


def usage(pids: Sequence[int]) -> Usage:
    """Of these processes and all that they started, threads and ended children included."""
    found = list(family(pids))
    by_process: dict[str, float] = {}
    for pid in {*found, os.getpid()}:
        name = _name(pid)
        by_process[name] = by_process.get(name, 0.0) + _cpu_s(pid)
    return Usage(sum(map(_cpu_s, found)), sum(map(_peak_mb, found)), by_process)


def since(before: Usage, now: Usage) -> Usage:
    """CPU time between two looks; a process that came or went between them counts as far as it was seen."""
    by_process = {
        name: max(0.0, seconds - before.cpu_s_by_process.get(name, 0.0))
        for name, seconds in now.cpu_s_by_process.items()
    }
    return Usage(now.cpu_s - before.cpu_s, now.peak_rss_mb, by_process)


def family(pids: Sequence[int]) -> Iterable[int]:
    """`pids` and their living descendants, each once."""
    parents = {int(path.name): _parent(path) for path in PROC.iterdir() if path.name.isdigit()}
    found = set(pids)
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return sorted(found)


def _name(pid: int) -> str:
    """What a reader calls a process: the model of a Triton stub, otherwise its program."""
    if pid == os.getpid():
        return CLIENT
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
    return stub_model(words) or Path(words[0]).name or "gone"


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
