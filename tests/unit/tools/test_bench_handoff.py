"""The hand-off benchmark measures hand-offs between processes."""

from __future__ import annotations

import json

import pytest

from router_backend.core.request import ModelIndex
from tools import bench_handoff
from tools.bench_handoff import SENT_AT, TimedInbox, handoff, returned


def test_a_returned_hand_off_is_the_next_one_in_the_other_direction() -> None:
    there = handoff(3, source=1, seq=0)
    back = returned(there, 12.5)

    assert (back.target, back.message.source, back.message.target) == (1, ModelIndex(0), ModelIndex(1))
    assert (back.message.seq, back.message.meta) == (1, {SENT_AT: 12.5})


def test_an_inbox_notes_how_long_each_hand_off_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_handoff.time, "perf_counter", lambda: 1.0)
    inbox = TimedInbox()
    inbox.put_all([returned(handoff(0, 1, 0), 0.5).message, returned(handoff(1, 1, 0), 0.75).message])

    assert inbox.latencies_us == [500_000.0, 250_000.0]
    assert len(inbox.drain()) == 2


def test_two_processes_are_measured_beside_their_floor(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--seconds", "1", "--step-ms", "1", "--concurrency", "1", "4"]

    assert bench_handoff.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    measured = [(row["transport"], row["concurrency"]) for row in document["rows"]]
    assert measured == [("zmq", 1), ("zmq", 4), ("unix", 1), ("unix", 4)]
    assert document["rows"][-1] == {key: document[key] for key in document if key != "rows"}
    assert all(row["floor_p50_us"] > 0 and 0 < row["p50_us"] <= row["p99_us"] for row in document["rows"])
