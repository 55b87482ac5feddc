"""docs/metrics.md is the catalogue, and the tool that writes it says when it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from python_backend.metric_catalogue import CATALOGUE, SECTIONS, metric_of
from tools.metric_reference import BEGIN, END, PAGE, main, written


def test_the_committed_page_is_current() -> None:
    assert written(PAGE.read_text()) == PAGE.read_text(), "run python -m tools.metric_reference"


def test_check_fails_on_an_old_page_and_writing_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\nold\n{END}\n")
    assert main(["--page", str(page), "--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert main(["--page", str(page)]) == 0
    assert main(["--page", str(page), "--check"]) == 0


def test_a_page_without_markers_and_a_missing_one_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bare.md").write_text("")
    assert [main(["--page", str(tmp_path / name)]) for name in ("bare.md", "none.md")] == [1, 1]
    error = capsys.readouterr().err
    assert "metrics: begin" in error
    assert "none.md" in error


def test_a_program_gets_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in found] == list(CATALOGUE)


def test_no_metric_is_listed_twice_and_names_follow_prometheus() -> None:
    listed = [metric for _, _, section in SECTIONS for metric in section]
    assert len(listed) == len(CATALOGUE)
    for metric in listed:
        assert metric.name.endswith("_total") == (metric.kind.value == "counter"), metric


def test_a_family_of_a_histogram_belongs_to_it_and_to_nothing_else() -> None:
    assert metric_of("ttft_seconds_bucket") is CATALOGUE["ttft_seconds"]
    assert metric_of("live_requests") is CATALOGUE["live_requests"]
    assert (metric_of("live_requests_count"), metric_of("surprise")) == (None, None)
