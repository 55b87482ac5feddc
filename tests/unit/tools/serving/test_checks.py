"""What is missing is named together with its cure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from python_backend.config import parse_deployment
from tools.serving.checks import (
    Needs,
    library_problem,
    missing_libraries,
    problems,
    shm_problems,
    told,
    weight_problems,
)

PAIR = parse_deployment("models: [{name: small}, {name: large}]", "test")


def fill(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()


@pytest.mark.parametrize(
    ("library", "package"),
    [
        ("libpython3.11.so.1.0", "libpython3.11"),
        ("libpython3.12.so.1.0", "libpython3.12"),
        ("libnuma.so.1", "libnuma1"),
        ("libstdc++.so.6", "libstdc++6"),
    ],
)
def test_a_missing_library_names_its_debian_package(library: str, package: str) -> None:
    assert library_problem(library) == f"the shared library {library} is missing: apt-get install {package}"


def test_an_unknown_library_says_how_to_find_its_package() -> None:
    assert "apt-file search libodd.so.3" in library_problem("libodd.so.3")


def test_the_running_python_misses_no_library() -> None:
    assert missing_libraries(Path(sys.executable).resolve(), os.environ) == []


def test_libraries_that_the_loader_does_not_find_are_listed(tmp_path: Path) -> None:
    ldd = tmp_path / "ldd"
    ldd.write_text(
        "#!/bin/sh\necho '\tlibpython3.11.so.1.0 => not found'\necho '\tlibm.so.6 => /lib/libm.so.6 (0x7f)'\n"
    )
    ldd.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = problems(Needs((Path("tritonserver"),), environment, 0))
    assert found == ["the shared library libpython3.11.so.1.0 is missing: apt-get install libpython3.11"]


def test_too_little_shared_memory_says_how_much_is_needed() -> None:
    (problem,) = shm_problems(free=10 * 1024 * 1024, needed=28 * 1024 * 1024)
    assert problem.startswith(
        "/dev/shm has 10 MiB free, 28 MiB are needed: mount -o remount,size=1g /dev/shm"
    )
    assert "--shm-size=1g" in problem


def test_enough_shared_memory_is_no_problem() -> None:
    assert shm_problems(free=1, needed=1) == []


def test_complete_models_are_no_problem(tmp_path: Path) -> None:
    for name in PAIR.names:
        fill(tmp_path / name / "1", "config.json", "tokenizer.json", "model.safetensors")
    assert weight_problems(PAIR, tmp_path) == []


def test_missing_weights_are_named_with_both_cures(tmp_path: Path) -> None:
    fill(tmp_path / "small" / "1", "config.json", "tokenizer.json", "model.safetensors")
    fill(tmp_path / "large" / "1", "config.json", "tokenizer.json")
    (problem,) = weight_problems(PAIR, tmp_path)
    assert problem.startswith(f"model large: {tmp_path / 'large' / '1'} has no *.safetensors: ")
    assert "LARGE=..." in problem
    assert "python -m tools.train_demo_pair" in problem


def test_a_scripted_model_needs_no_weights(tmp_path: Path) -> None:
    scripted = parse_deployment("models: [{name: small, engine: scripted, script: s.json}]", "test")
    assert weight_problems(scripted, tmp_path) == []


def test_a_model_on_tensorrt_llm_needs_its_engine(tmp_path: Path) -> None:
    built = parse_deployment("models: [{name: small, engine: trtllm}]", "test")
    (problem,) = weight_problems(built, tmp_path)
    assert "small/1/engine/config.json" in problem
    assert "make one with python -m tools.build_engine" in problem


def test_problems_are_told_one_a_line() -> None:
    assert told(["a", "b"]) == "  - a\n  - b"
