"""An engine of two processes: every rank runs what rank 0 was told, and no death goes unnoticed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from python_backend.runner.ranks.base import Workers
from python_backend.runner.ranks.frames import pack_feed
from python_backend.runner.ranks.launching import LocalLauncher
from python_backend.runner.ranks.ranked_runner import GRACE_S, LOOK_S, RankCommand, RankedRunner
from router_backend.core.errors import ConfigError, EngineLostError, RunnerError
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row
from tests.source_tree import ROOT
from tests.unit.runner.ranks.child import INFO

CHILD = "tests.unit.runner.ranks.child"
DEATH_KNOWN_S_MAX = 10.0
"""Two seconds, on a machine five times slower."""


def plan(step: int, *fed: list[int]) -> BatchPlan:
    rows = tuple(
        Row(RequestId(f"r{index}"), tokens, index, [index, index + 1], True, Sampling(), 0, (), 3)
        for index, tokens in enumerate(fed)
    )
    return BatchPlan(step, rows, Needs(), LaunchReason.DRAIN)


@contextmanager
def ranks(folder: Path, script: str = "") -> Iterator[RankedRunner]:
    command = [sys.executable, "-m", CHILD, str(folder), script]
    runner = RankedRunner(LocalLauncher(2), RankCommand(command, {"PYTHONPATH": str(ROOT)}))
    try:
        yield runner
    finally:
        runner.close()


def test_every_rank_runs_the_same_steps_and_rank_0_answers(tmp_path: Path) -> None:
    plans = [plan(1, [1, 2], [5]), plan(2, [3]), plan(3, *[[n] for n in range(12)])]
    with ranks(tmp_path) as runner:
        outputs = [runner.execute(one) for one in plans]
        assert runner.info == INFO

    assert [output.tokens.tolist() for output in outputs] == [[3, 5], [3], list(range(12))]
    assert [output.scores["seen"].tolist() for output in outputs] == [[2.0], [1.0], [12.0]]
    notes = [(tmp_path / f"rank{rank}").read_bytes() for rank in range(2)]
    assert notes == [b"".join(map(pack_feed, plans))] * 2
    assert all((tmp_path / f"rank{rank}.closed").exists() for rank in range(2))


def test_a_failed_step_is_an_answer_and_the_next_one_runs(tmp_path: Path) -> None:
    with ranks(tmp_path) as runner:
        with pytest.raises(RunnerError, match="thirteen"):
            runner.execute(plan(1, [13]))
        assert runner.execute(plan(2, [4])).tokens.tolist() == [4]


def test_the_death_of_a_rank_is_known_at_once_and_the_engine_is_lost(tmp_path: Path) -> None:
    with ranks(tmp_path) as runner:
        runner.execute(plan(1, [1]))
        started_at = time.monotonic()
        with pytest.raises(EngineLostError, match="rank 1 ended with status 3"):
            runner.execute(plan(2, [99]))
        assert time.monotonic() - started_at < DEATH_KNOWN_S_MAX
        with pytest.raises(EngineLostError, match="the ranks of this engine are gone"):
            runner.execute(plan(3, [1]))


def test_looking_after_ranks_leaves_most_of_two_seconds() -> None:
    assert LOOK_S + GRACE_S < 1.0


def test_an_engine_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^TR_CONFIG: no engine here$"), ranks(tmp_path, "refuse"):
        pass


def test_a_rank_that_never_starts_is_named(tmp_path: Path) -> None:
    command = RankCommand([sys.executable, "-c", "import sys; sys.exit(5)"])
    with pytest.raises(ConfigError, match="rank 0 ended with status 5"):
        RankedRunner(LocalLauncher(1), command)


def test_no_rank_outlives_its_runner(tmp_path: Path) -> None:
    seen: list[Workers] = []

    class Remembering(LocalLauncher):
        def launch(self, command, environment):  # type: ignore[no-untyped-def]
            seen.append(super().launch(command, environment))
            return seen[-1]

    command = [sys.executable, "-m", CHILD, str(tmp_path), ""]
    RankedRunner(Remembering(2), RankCommand(command, {"PYTHONPATH": str(ROOT)})).close()
    pids = [child.pid for child in seen[0]._children]  # type: ignore[attr-defined]
    assert len(pids) == 2
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
