"""docs/metrics.md is the catalogue, and the tool that writes it says when it is not."""

from __future__ import annotations

import json

import pytest

from python_backend.metric_catalogue import CATALOGUE, SECTIONS, metric_of
from tools.metric_reference import main


def test_the_committed_page_is_current() -> None:
    assert main(["--check"]) == 0


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
