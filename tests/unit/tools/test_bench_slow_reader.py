"""What the bench serves, and what its table says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from python_backend.config import parse_deployment
from tools import bench_slow_reader as tool
from tools.bench_slow_reader import KINDS, Plan, Row, as_text, main, options, row
from tools.emulation.pair import SCRIPT

PLAN = Plan(4, 100_000, 5.0, 3)


def test_the_long_answer_fits_and_text_is_gathered_as_a_deployment_gathers_it(tmp_path: Path) -> None:
    repository = options(PLAN, tmp_path).repository
    deployment = parse_deployment((repository / "deployment.yaml").read_text(), "test")
    assert json.loads((repository / SCRIPT).read_text())["length_max"] == 200_000
    assert [model.kv_tokens for model in deployment.models] == [400_000, 400_000]
    assert yaml.safe_load((repository / "deployment.yaml").read_text())["front"].keys() == {"tokenizer_dir"}


def test_the_table_compares_with_the_neighbours_alone() -> None:
    lines = as_text([Row("alone", 900, 1.5, 4.0), Row("beside a sleeper", 800, 1.6, 5.0)]).splitlines()
    assert lines[2].split() == ["beside", "a", "sleeper", "800", "1.60", "5.00", "1.25"]


def test_gaps_are_told_in_ms() -> None:
    assert row("alone", [0.001] * 99 + [0.001]) == Row("alone", 100, 1.0, 1.0)


def test_nothing_to_measure_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(plan: Plan) -> list[Row]:
        return [row(KINDS[0], [])]

    monkeypatch.setattr(tool, "bench", nothing)
    assert main([]) == 1
    assert capsys.readouterr().err == "bench_slow_reader: alone: nothing came\n"
