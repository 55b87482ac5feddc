"""The scheduler benchmark measures what it says it measures."""

from __future__ import annotations

import json

from tools import bench_scheduler


def test_the_table_is_json_with_the_running_and_parked_of_each_row(capsys, monkeypatch):
    monkeypatch.setattr(bench_scheduler, "CASES", ((1, 0), (2, 3)))

    assert bench_scheduler.main(["--turns", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["running"], row["parked"]) for row in rows] == [(1, 0), (2, 3)]
    assert all(0 < row["median_ms"] <= row["p99_ms"] for row in rows)


def test_the_table_for_people_has_a_line_per_case(capsys, monkeypatch):
    monkeypatch.setattr(bench_scheduler, "CASES", ((1, 0),))

    bench_scheduler.main(["--turns", "3"])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_turn_runs_everybody_who_is_ready_and_nobody_who_is_parked():
    chosen = bench_scheduler.prepared(4, 6)
    bench_scheduler.turn(chosen)

    assert (chosen.gauges()["ready"], chosen.gauges()["parked"], chosen.counters.batch_rows) == (4, 6, 14)
