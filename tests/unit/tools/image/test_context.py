"""Which files a build sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source_tree import ROOT
from tools.image.context import files, is_ignored, rules

ALLOWED = rules("# only these\n*\n!src\n!README.md\n**/__pycache__\nsrc/*.so\n")


@pytest.mark.parametrize(
    ("path", "ignored"),
    [
        ("src/a.py", False),
        ("src/deep/er/a.py", False),
        ("README.md", False),
        ("tests/a.py", True),
        ("src/__pycache__/a.pyc", True),
        ("src/deep/__pycache__/a.pyc", True),
        ("src/lib.so", True),
        ("src/deep/lib.so", False),
    ],
)
def test_the_last_pattern_that_matches_a_path_or_a_folder_above_it_decides(path: str, ignored: bool) -> None:
    assert is_ignored(path, ALLOWED) is ignored


def test_a_context_without_the_file_is_taken_whole_but_for_git(tmp_path: Path) -> None:
    for name in ("a", "b/c", ".git/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(files(tmp_path)) == [Path("a"), Path("b/c")]


def test_our_context_has_the_code_and_the_demo_pair_and_nothing_that_was_made_here() -> None:
    found = {path.as_posix() for path in files(ROOT)}
    assert {
        "setup.py",
        "docker/entrypoint.sh",
        "docker/backends/token_router/model.py",
        "python_backend/model.py",
        "requirements/constraints.txt",
        "model_repository/small/1/model.safetensors",
    } <= found
    folders = {name.partition("/")[0] for name in found}
    assert folders & {".git", ".venv", ".run", "tests", "build"} == set()
    assert [name for name in found if name.endswith((".so", ".pyc"))] == []
