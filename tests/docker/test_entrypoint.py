"""What a container does with its arguments and its environment. A `python3` that shows them stands in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.source_tree import ROOT

ENTRYPOINT = ROOT / "docker" / "entrypoint.sh"
COMMON = [
    *("--host", "0.0.0.0", "--http-port", "8000", "--grpc-port", "8001", "--metrics-port", "8002"),
    *("--drain-s", "30", "--ready-s", "900"),
]
USUAL = ["-m", "tools.serve", "--openai-port", "8003", "--repository", "model_repository", *COMMON]


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
    assert found[6:10] == ["--policy", "r_stitch", "--cutoff", "0.3"]
    assert found[-2:] == ["--small", "a b"]
    assert found[found.index("--http-port") + 1] == "9000"


def test_a_part_serves_the_models_that_it_is_told_to(stand_in: Path) -> None:
    part = ["-m", "tools.serve_part", "model_repository"]
    assert words(stand_in, "part", "small") == [*part, *COMMON, "--only", "small"]
    found = words(
        stand_in, "part", "token_router", "--drain-s", "5", OPENAI_PORT="8003", SETTINGS="network.yaml"
    )
    assert found[:7] == [*part, "--openai-port", "8003", "--settings", "network.yaml"]
    assert found[-4:] == ["--only", "token_router", "--drain-s", "5"]


def test_an_empty_variable_is_no_variable(stand_in: Path) -> None:
    assert words(stand_in, POLICY="", CUTOFF="", API_KEYS="", MODEL_REPOSITORY="") == USUAL


def test_any_other_command_is_run_as_it_is(stand_in: Path) -> None:
    assert words(stand_in, "python3", "-m", "tools.check_trtllm") == ["-m", "tools.check_trtllm"]
