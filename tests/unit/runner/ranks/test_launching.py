"""Which environment ranks get, and what happens without MPI."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from python_backend.runner.ranks.launching import LocalLauncher, MpiLauncher, scrubbed
from router_backend.core.errors import ConfigError


def test_the_traces_of_another_mpi_job_are_left_out() -> None:
    traces = ("OMPI_COMM_WORLD_SIZE", "OMPI_MCA_orte_x", "ORTE_Y", "PMIX_RANK", "PMI_FD")
    kept = {"PATH": "p", "OMPI_ALLOW_RUN_AS_ROOT": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert scrubbed({**dict.fromkeys(traces, "1"), **kept}) == kept


def test_local_ranks_know_their_number(tmp_path: Path) -> None:
    code = f"import os; open('{tmp_path}/' + os.environ['TOKEN_ROUTER_RANK'], 'w').write(os.environ['X'])"
    workers = LocalLauncher(3).launch([sys.executable, "-c", code], {"X": "y"})
    for child in workers._children:
        child.wait(60)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"0": "y", "1": "y", "2": "y"}
    assert workers.failure() == "rank 0 ended with status 0"
    workers.stop()


def test_without_mpirun_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="mpirun is not on PATH: 2 ranks need Open MPI"):
        MpiLauncher(2).launch(["true"], {})


def test_mpirun_is_asked_for_every_rank_with_a_clean_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/sh\necho "$@" "${{PMIX_RANK:-clean}}" "$EXTRA" > {tmp_path}/told\n')
    mpirun.chmod(mpirun.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PMIX_RANK", "7")

    workers = MpiLauncher(2).launch(["worker", "--x"], {"EXTRA": "e"})
    (child,) = workers._children
    child.wait(60)
    workers.stop()

    assert (tmp_path / "told").read_text() == "--allow-run-as-root -n 2 worker --x clean e\n"
    assert workers.failure() == "the MPI job ended with status 0"
    assert isinstance(child, subprocess.Popen)
