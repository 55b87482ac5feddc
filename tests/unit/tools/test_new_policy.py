"""What the tool writes is a policy that loads, and a test that passes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from python_backend.roles.policy_files import load_policies
from tests.source_tree import ROOT
from tools.new_policy import main


def new(folder: Path, name: str) -> int:
    return main([name, "--repository", str(folder / "repository"), "--tests", str(folder / "tests")])


def test_the_policy_loads_and_its_test_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tmp_path, "my_rule") == 0

    said = capsys.readouterr().out
    assert "policy_files: [my_rule.py]" in said
    assert list(load_policies(["my_rule.py"], tmp_path / "repository")) == ["my_rule"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path / "tests")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=120)
    assert run.returncode == 0, run.stdout


def test_what_it_writes_is_in_the_style_of_this_repository(tmp_path: Path) -> None:
    assert new(tmp_path, "my_rule") == 0

    files = [tmp_path / "repository" / "my_rule.py", tmp_path / "tests" / "test_my_rule.py"]
    ruff = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml")]
    command = [*ruff, *map(str, files)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True, timeout=60)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [("My-Rule", "small letters, digits and _"), ("r_stitch", "there is a built-in policy of this name")],
)
def test_a_name_that_will_not_do_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    assert new(tmp_path, name) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_exists_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_mine.py").write_text("mine")

    assert new(tmp_path, "mine") == 2
    assert "exists already" in capsys.readouterr().err
    assert not (tmp_path / "repository").exists()
