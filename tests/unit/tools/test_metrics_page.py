"""Samples are read as Triton writes them; sums are over the labels that are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.metrics_page import MetricsPageError, Sample, read, samples_in, total

PAGE = """# HELP token_router_steps_total Batches.
# TYPE token_router_steps_total counter
token_router_steps_total{model="small",kind="whole"} 10
token_router_steps_total{model="small",kind="again"} 2.500000
token_router_steps_total{model="large",kind="whole"} 4
nv_inference_count{model="small"} 7
"""


def test_samples_are_those_of_this_project_without_its_prefix() -> None:
    assert samples_in(PAGE)[1:] == [
        Sample("steps_total", {"model": "small", "kind": "again"}, 2.5),
        Sample("steps_total", {"model": "large", "kind": "whole"}, 4.0),
    ]


def test_a_total_is_over_the_samples_that_carry_the_labels() -> None:
    samples = samples_in(PAGE)
    assert total(samples, "steps_total") == 16.5
    assert total(samples, "steps_total", model="small") == 12.5
    assert total(samples, "steps_total", model="small", kind="whole") == 10.0
    assert total(samples, "rows_total") == total(samples, "steps_total", model="other") == 0.0


@pytest.fixture
def address(tmp_path: Path) -> Callable[[str], str]:
    """Where a page of this text can be read."""

    def written(text: str) -> str:
        (tmp_path / "page").write_text(text)
        return (tmp_path / "page").as_uri()

    return written


def test_a_page_is_read(address: Callable[[str], str]) -> None:
    assert read(address(PAGE)) == samples_in(PAGE)


def test_another_server_s_page_is_named(address: Callable[[str], str]) -> None:
    with pytest.raises(MetricsPageError, match="no metrics of TokenRouter"):
        read(address("nv_inference_count{} 1\n"))


def test_a_server_that_is_not_there_is_named_with_the_cure() -> None:
    with pytest.raises(MetricsPageError, match=r"127\.0\.0\.1:1/.*`make serve`"):
        read("http://127.0.0.1:1/metrics")
