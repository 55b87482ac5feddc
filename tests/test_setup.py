"""What `make setup` installs is complete, exact, and what these tests are running with."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

REQUIREMENTS = ROOT / "requirements"
PROJECT = (ROOT / "pyproject.toml").read_text()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lines_of(file: str) -> list[str]:
    lines = (REQUIREMENTS / file).read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", "-"))]


def names_in(file: str) -> set[str]:
    return {normal(re.split(r"[\[=<>;]", line)[0]) for line in lines_of(file)}


def is_for_this_python(line: str) -> bool:
    marker = re.search(r'python_version (>=|<) "3\.(\d+)"', line)
    if marker is None:
        return True
    is_newer = sys.version_info.minor >= int(marker[2])
    return is_newer if marker[1] == ">=" else not is_newer


def pins(file: str) -> dict[str, str]:
    found = [re.match(r"([^=;]+)==([^;]+)", line) for line in lines_of(file) if is_for_this_python(line)]
    return {normal(match[1]): match[2].strip() for match in found if match}


def test_every_direct_dependency_is_pinned() -> None:
    exact = {*pins("constraints.txt"), *pins("torch.txt"), *pins("triton.txt")}
    assert names_in("all.txt") - exact == set()


def declared_names() -> set[str]:
    declared = re.search(r"\ndependencies = \[(.*?)\]", PROJECT, re.DOTALL)
    assert declared
    return {normal(re.split(r"[<>=]", item)[0]) for item in re.findall(r'"([^"]+)"', declared[1])}


def test_what_the_project_declares_is_what_setup_installs() -> None:
    assert declared_names() - names_in("all.txt") == set()


def test_an_image_installs_what_the_project_declares_and_what_builds_it() -> None:
    of_the_openai_server = {"fastapi", "grpcio", "protobuf", "python-rapidjson", "uvicorn"}
    assert names_in("serve.txt") == declared_names() | of_the_openai_server | {"pybind11", "setuptools"}


@pytest.mark.parametrize("file", ["constraints.txt", "torch.txt", "triton.txt"])
def test_the_running_environment_has_the_pinned_versions(file: str) -> None:
    installed = {
        normal(found.metadata["Name"]): found.version for found in importlib.metadata.distributions()
    }
    wanted = {name: version for name, version in pins(file).items() if name in installed}
    assert {name: installed[name].partition("+")[0] for name in wanted} == wanted


@pytest.mark.parametrize("script", [".ci/run", "docker/entrypoint.sh", "requirements/install.sh"])
def test_the_scripts_are_bash(script: str) -> None:
    subprocess.run(["bash", "-n", script], cwd=ROOT, check=True)
    assert os.access(ROOT / script, os.X_OK)


def install(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, "VENV": str(tmp_path / "venv"), **variables}
    return subprocess.run(
        ["bash", "requirements/install.sh"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_python_is_named_with_its_cure(tmp_path: Path) -> None:
    run = install(tmp_path, PYTHON="python3.99")
    assert run.returncode == 1
    assert run.stderr.startswith(
        "make setup: python3.99 is not installed: apt-get install python3 python3-venv"
    )


def python(folder: Path, script: str) -> str:
    """An interpreter that runs `script` and ends with 1 if it comes to its end."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\nexit 1\n")
    path.chmod(0o755)
    return str(path)


def test_an_unsupported_python_is_named(tmp_path: Path) -> None:
    run = install(tmp_path, PYTHON=python(tmp_path, '[ "$1" = --version ] && echo Python 3.8.1 && exit 0'))
    assert run.returncode == 1
    assert "Python 3.8.1 cannot be used: Python 3.10, 3.11 or 3.12 is needed" in run.stderr


def test_no_module_for_virtual_environments_is_named_with_its_cure(tmp_path: Path) -> None:
    run = install(tmp_path, PYTHON=python(tmp_path, '[ "$1" = -c ] && exit 0\necho no ensurepip >&2'))
    assert run.returncode == 1
    assert "make setup: no virtual environment: apt-get install python3-venv" in run.stderr
