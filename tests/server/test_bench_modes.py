"""The emulated pair on a real tritonserver."""

from __future__ import annotations

import json

import pytest

from tools import bench_modes


def test_an_emulated_pair_is_served_and_measured(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--concurrency", "2", "--modes", "eager_async", "--seconds", "3", "--repeat", "1"]

    assert bench_modes.main(arguments) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["mode"], row["n"], row["thresholds"]) == ("eager_async", 2, [1, 1])
    # How close it comes is for a quiet machine to say; nothing can be faster than its own steps.
    assert row["predicted"] == pytest.approx(98.96, abs=0.01)
    assert 0.0 < row["ratio"] < 1.05
    assert all(1.0 <= batch <= 2.0 for batch in row["mean_batch"])
    assert row["gap_p99_ms"] > 6.0
