"""The event log: what is written, what never is, and what happens when it cannot be."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from python_backend.loops import event_log
from python_backend.loops.event_log import EventLog, Step
from router_backend.core.effects import Effect, Emit, Send
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, RequestId, Sampling
from router_backend.handoff.message import Finished, Handoff
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row

MODELS = ("small", "large")
SMALL, LARGE = ModelIndex(0), ModelIndex(1)
SECRET = 424242


def row(name: str) -> Row:
    return Row(RequestId(name), [SECRET], 0, [0], True, Sampling(), 0)


def step(started_at: float = 1.0, ended_at: float = 1.25) -> Step:
    """Requests a and b ran; a goes on to the large model."""
    a = RequestId("a")
    effects: list[Effect] = [
        Emit("front", a, 0, 0, (SECRET,), SMALL),
        Send(LARGE, Handoff(a, 0, SMALL, LARGE, 0, 0, (SECRET,), (1, 1))),
        Send(LARGE, Finished(RequestId("b"), 0, SMALL)),
    ]
    plan = BatchPlan(1, (row("a"), row("b")), Needs(), LaunchReason.THRESHOLD)
    return Step(started_at, ended_at, plan, effects)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[EventLog]:
    """A log whose thread has not begun; everything is written and closed afterwards."""
    log = EventLog(folder, MODELS, SMALL)
    try:
        yield log
    finally:
        log.stop()
        log.run()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


START = {"what": "start", "model": "small", "models": list(MODELS), "pid": os.getpid()}
LAUNCH = {
    "what": "launch",
    "at": 1.0,
    "model": "small",
    "reason": "threshold",
    "step_s": 0.25,
    "requests": ["a", "b"],
}
HANDOFF = {"what": "handoff", "at": 1.25, "request": "a", "source": "small", "target": "large"}


def test_a_step_is_a_launch_and_its_hand_offs_and_nothing_of_a_text(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "folder") as log:
        log.note(step())

    written = tmp_path / "new" / "folder" / "small.jsonl"
    assert lines(written) == [START, LAUNCH, HANDOFF]
    assert str(SECRET) not in written.read_text()


def test_its_thread_writes_everything_before_it_ends(tmp_path: Path) -> None:
    log = EventLog(tmp_path, MODELS, SMALL)
    thread = threading.Thread(target=log.run)
    thread.start()
    for number in range(100):
        log.note(step(number, number + 0.5))
    log.stop()
    thread.join(10.0)

    launches = [line["at"] for line in lines(tmp_path / "small.jsonl") if line["what"] == "launch"]
    assert launches == list(range(100))


def test_a_process_that_starts_again_goes_on_behind_the_last_one(tmp_path: Path) -> None:
    for _ in range(2):
        with opened(tmp_path) as log:
            log.note(step())

    assert lines(tmp_path / "small.jsonl") == [START, LAUNCH, HANDOFF] * 2


def test_a_full_file_makes_room_and_the_one_before_it_goes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(event_log, "FILE_BYTES_MAX", 400)
    with opened(tmp_path) as log:
        for number in range(20):
            log.note(step(number, number + 0.5))
            log.flush()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.jsonl", "small.jsonl.1"]
    assert lines(tmp_path / "small.jsonl")[0] == START
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1600


def test_steps_that_nobody_writes_are_counted_and_not_kept(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(event_log, "STEPS_MAX", 1)
    with opened(tmp_path) as log:
        for _ in range(4):
            log.note(step())
        log.flush()

    lost = {"what": "lost", "model": "small", "steps": 3}
    assert lines(tmp_path / "small.jsonl") == [START, LAUNCH, HANDOFF, lost]


def test_an_error_of_the_disk_ends_the_log_and_nothing_else(tmp_path: Path, caplog, monkeypatch) -> None:
    (tmp_path / "small.jsonl.1").mkdir()
    (tmp_path / "small.jsonl.1" / "in the way").write_text("")
    monkeypatch.setattr(event_log, "FILE_BYTES_MAX", 1)
    with caplog.at_level(logging.ERROR), opened(tmp_path) as log:
        for _ in range(2):
            log.note(step())
            log.flush()

    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["the event log ends here"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"event_log: .*file/small.jsonl: "):
        EventLog(tmp_path / "file", MODELS, SMALL)
