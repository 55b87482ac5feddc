"""Memory of a server and of all that it started, and whether it stays flat.

Resident pages of every process of the tree but the one that is killed on purpose (it is a new one each time),
and the bytes of the server's files in shared memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tools.triton_layout import SHM
from tools.triton_server import TritonServer, children

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 2**20
RSS_GROWTH = 0.05
RSS_GROWTH_BYTES = 16 * MIB
"""The end may lie above the start by this share of it and these bytes."""
SHM_GROWTH_BYTES = 2 * MIB
WINDOW = 0.1
"""Part of a run whose median stands for the start, the middle and the end; a first such part warms up."""


@dataclass(frozen=True, slots=True)
class Look:
    """Bytes at one moment, seconds since the load began."""

    at_s: float
    rss: int
    shm: int


@dataclass(frozen=True, slots=True)
class Phases:
    """Bytes at the start, in the middle and at the end."""

    start: int
    middle: int
    end: int


def look(server: TritonServer, without: str, at_s: float) -> Look:
    """`without`: the model whose process is not counted."""
    left_out = server.stubs().get(without)
    pids = [pid for pid in tree(server.pid) if pid != left_out]
    files = SHM.glob(f"{server.shm_prefix}*")
    return Look(at_s, sum(map(rss_bytes, pids)), sum(map(_file_bytes, files)))


def tree(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for child in children(pid):
        found += tree(child)
    return found


def rss_bytes(pid: int) -> int:
    """0 for a process that has ended meanwhile."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def phases(looks: Sequence[Look], values: Sequence[int], duration_s: float) -> Phases:
    """Medians of `values`, one for each look, over a window at the start, the middle and the end."""
    return Phases(*(_median(looks, values, duration_s * at) for at in (WINDOW, 0.5 - WINDOW / 2, 1 - WINDOW)))


def _median(looks: Sequence[Look], values: Sequence[int], from_s: float) -> int:
    """Of the window that begins there; where no look fell into it, of the nearest look."""
    width = WINDOW * looks[-1].at_s if looks else 0.0
    inside = [value for one, value in zip(looks, values, strict=True) if from_s <= one.at_s < from_s + width]
    nearest = min(zip(looks, values, strict=True), key=lambda pair: abs(pair[0].at_s - from_s))
    return round(median(inside or [nearest[1]]))


def rss_bound(found: Phases) -> int:
    return round(found.start * (1 + RSS_GROWTH)) + RSS_GROWTH_BYTES


def shm_bound(found: Phases) -> int:
    return found.start + SHM_GROWTH_BYTES
