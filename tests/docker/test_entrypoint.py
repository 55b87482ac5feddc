"""What a container does with its arguments and its environment. A `python3` that shows them stands in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
USUAL = [
    *("-m", "tools.serve", "--host", "0.0.0.0", "--http-port", "8000", "--grpc-port", "8001"),
    *("--metrics-port", "8002", "--openai-port", "8003"),
    *("--repository", "model_repository", "--drain-s", "30"),
]


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\npwd\nfor word in "$@"; do echo "$word"; done\n')
    python.chmod(0o755)
    return tmp_path


def words(stand_in: Path, *arguments: str, **environment: str) -> list[str]:
    run = subprocess.run(
        [str(ENTRYPOINT), *arguments],
        env={"PATH": f"{stand_in}:{os.environ['PATH']}", **environment},
        cwd="/",
        capture_output=True,
        check=True,
        text=True,
    )
    where, *rest = run.stdout.splitlines()
    assert where == str(ROOT), "the tools are started from the root of the repository"
    return rest


def test_a_container_serves_on_every_interface(stand_in: Path) -> None:
    assert words(stand_in) == USUAL
    assert words(stand_in, "serve") == USUAL


def test_options_are_handed_on_and_the_environment_sets_the_rest(stand_in: Path) -> None:
    found = words(stand_in, "serve", "--small", "a b", POLICY="r_stitch", CUTOFF="0.3", HTTP_PORT="9000")
    assert found[-6:] == ["--policy", "r_stitch", "--cutoff", "0.3", "--small", "a b"]
    assert found[found.index("--http-port") + 1] == "9000"


def test_an_empty_variable_is_no_variable(stand_in: Path) -> None:
    assert words(stand_in, POLICY="", CUTOFF="", API_KEYS="", MODEL_REPOSITORY="") == USUAL


def test_any_other_command_is_run_as_it_is(stand_in: Path) -> None:
    assert words(stand_in, "python3", "-m", "tools.check_trtllm") == ["-m", "tools.check_trtllm"]
