"""Memory is that of the whole tree, and flat means what the bounds say."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.soaking import memory
from tools.soaking.memory import MIB, Look, Phases, look, phases, rss_bound, rss_bytes, shm_bound, tree


@dataclass
class Server:
    """A process with a child that stands for a model."""

    pid: int
    model: int
    shm_prefix: str = "soak_test_"

    def stubs(self) -> dict[str, int]:
        return {"large": self.model}


def test_every_process_below_counts_but_the_one_that_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "SHM", tmp_path)
    (tmp_path / "soak_test_region").write_bytes(b"x" * 8192)
    (tmp_path / "of_somebody_else").write_bytes(b"x" * 8192)
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in tree(os.getpid())
        without = look(Server(os.getpid(), child.pid), "large", 2.0)
        everything = look(Server(os.getpid(), child.pid), "nobody", 2.0)
        size = rss_bytes(child.pid)
        child.communicate(b"")
    assert (without.at_s, without.shm) == (2.0, 8192)
    assert everything.rss - without.rss > size // 2
    assert rss_bytes(child.pid) == 0


def test_a_phase_is_the_median_of_its_window() -> None:
    looks = [Look(float(second), second, 0) for second in range(101)]
    spiky = [9_999 if one.at_s == 12 else one.rss for one in looks]

    assert phases(looks, spiky, 100.0) == Phases(16, 50, 94)


def test_few_looks_stand_for_the_windows_that_they_are_nearest_to() -> None:
    looks = [Look(0.0, 1, 0), Look(50.0, 2, 0)]

    assert phases(looks, [one.rss for one in looks], 100.0) == Phases(1, 2, 2)


def test_bounds_grow_from_the_start() -> None:
    found = Phases(100 * MIB, 0, 0)

    assert rss_bound(found) == 121 * MIB
    assert shm_bound(found) == 102 * MIB
