"""Pages that are partly written from code: current ones stay, old ones are named or mended."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from python_backend.config import Deployment
from python_backend.model_settings import ModelSettings
from tools import config_reference
from tools.config_reference import meanings, tables
from tools.marked_page import bring_up_to_date

OLD = "before\n<!-- keys: begin (python -m x) -->\nold\n<!-- keys: end -->\nafter\n"


def updated(page: Path, check: bool) -> int:
    return bring_up_to_date(argparse.Namespace(page=page, check=check), "keys", "python -m x", "new")


def test_check_fails_on_an_old_page_and_writing_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(OLD)

    assert updated(page, check=True) == 1
    assert "is out of date: run python -m x" in capsys.readouterr().err
    assert page.read_text() == OLD
    assert updated(page, check=False) == 0
    assert page.read_text() == OLD.replace("\nold\n", "\n\nnew\n\n")
    assert updated(page, check=True) == 0


def test_a_page_without_markers_and_a_missing_one_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bare.md").write_text("")

    assert [updated(tmp_path / name, check=False) for name in ("bare.md", "none.md")] == [1, 1]
    error = capsys.readouterr().err
    assert "keys: begin" in error
    assert "none.md" in error


def test_the_configuration_page_is_current() -> None:
    assert config_reference.main(["--check"]) == 0


def test_every_key_stands_in_the_tables_with_its_meaning() -> None:
    text = tables()

    for settings in (Deployment, ModelSettings):
        assert all(f"| `{name}` |" in text for name in settings.model_fields)
    assert meanings(Deployment)["deadline_ms"] == "Longest deliberate wait for a batch to fill."
    assert "| `threads` | `1` | whole number, at least 1 |" in text
