"""A step's milliseconds are the profiler's shares of the CPU time over the rows that ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.bench_breakdown import COUNTERS, Probe, as_table, breakdown
from tools.peers.processes import Usage
from tools.peers.stacks import REST


def test_shares_of_the_process_s_time_are_told_per_row(tmp_path: Path) -> None:
    out = tmp_path / "stacks.txt"
    forward = "thread (5): small DecodeLoop;a (python_backend/runner/torch_runner/model.py:1)"
    out.write_text(f"{forward} 3\nthread (5): small DecodeLoop;b (elsewhere.py:1) 1\n")
    server: Any = None
    probe = Probe(server, out, out, 1.0, [])
    probe.counts = [
        dict.fromkeys(COUNTERS, 10.0),
        dict(zip(COUNTERS, (60.0, 110.0, 10.5, 60.0), strict=True)),
    ]
    probe.threads = [{5: 1.0}, {5: 3.0}]
    used = Usage(3.0, 0.0, {"small": 2.0, "router": 0.4})

    found = breakdown("ours", used, probe, committed=100)

    assert found.parts_ms["forward"] == pytest.approx(30.0)
    assert found.parts_ms[REST] == pytest.approx(10.0)
    assert found.around_ms == pytest.approx({"large": 0.0, "router": 4.0, "tritonserver": 0.0, "client": 0.0})
    assert (found.tokens_fed, found.wait_ms) == pytest.approx((2.0, 10.0))
    assert "| forward | 30.000 ms (75%) |" in as_table([found])
    assert "| router, per committed token | 4.000 ms |" in as_table([found])
