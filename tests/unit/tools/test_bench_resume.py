"""The resume benchmark really parks and resumes, and finds that the context does not matter."""

from __future__ import annotations

import json

from tools import bench_resume


def test_every_visit_is_a_hand_off_there_and_a_direct_resume_back():
    pair = bench_resume.Pair(context=64, visits=5)

    seconds = [pair.visit() for _ in range(5)]

    small, large = pair.small.counters, pair.large.counters
    assert min(seconds) > 0
    assert (small.handoffs_sent, small.direct_resumes, large.handoffs_sent) == (5, 5, 5)
    assert (small.prefix_lookups_on_return, small.discarded, large.committed) == (0, 5, 5)
    pair.small.check_integrity()


def test_the_table_is_json_with_a_row_per_context(capsys, monkeypatch):
    monkeypatch.setattr(bench_resume, "CONTEXTS", (32, 64))

    assert bench_resume.main(["--visits", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["context"], row["prefix_lookups_on_return"]) for row in rows] == [(32, 0), (64, 0)]
    assert all(row["cpu_us"] > 0 for row in rows)


def test_the_table_for_people_has_a_line_per_context(capsys, monkeypatch):
    monkeypatch.setattr(bench_resume, "CONTEXTS", (32,))

    bench_resume.main(["--visits", "3"])
    assert len(capsys.readouterr().out.splitlines()) == 2
