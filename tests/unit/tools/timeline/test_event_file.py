"""Reading event logs: of a folder or of files, whole, torn or foreign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from router_backend.core.errors import ConfigError
from tests.unit.tools.timeline.samples import TIMELINE, launch
from tools.timeline.event_file import lost_steps, read_timeline
from tools.timeline.record import Timeline


def start(model: str) -> dict[str, Any]:
    return {"what": "start", "model": model, "models": list(TIMELINE.models), "pid": 1}


def write(path: Path, *events: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def log_of(folder: Path, timeline: Timeline = TIMELINE) -> Path:
    """The timeline as its subservers would have written it."""
    for model, name in enumerate(timeline.models):
        launches = [
            {
                "what": "launch",
                "at": one.at,
                "model": name,
                "reason": one.reason.value,
                "step_s": one.step_s,
                "requests": one.request_ids,
            }
            for one in timeline.launches
            if one.model == model
        ]
        handoffs = [
            {"what": "handoff", "at": one.at, "request": one.request_id, "source": name, "target": "large"}
            for one in timeline.handoffs
            if one.source == model
        ]
        write(folder / f"{name}.jsonl", start(name), *launches, *handoffs)
    return folder


def test_a_folder_is_the_logs_of_all_models_in_order_of_time(tmp_path):
    found = read_timeline([log_of(tmp_path)])

    assert (found.models, found.launches, found.handoffs) == (
        TIMELINE.models,
        TIMELINE.launches,
        TIMELINE.handoffs,
    )


def test_one_file_is_one_model(tmp_path):
    found = read_timeline([log_of(tmp_path) / "large.jsonl"])

    assert found.launches == (launch(12.0, 1, 3.5, "b"),)


def test_the_older_half_of_a_long_log_is_read_too(tmp_path):
    log = log_of(tmp_path)
    (log / "small.jsonl").rename(log / "small.jsonl.1")
    write(log / "small.jsonl", start("small"))

    assert read_timeline([log]).launches == TIMELINE.launches


def test_the_half_line_of_a_killed_process_is_left_out(tmp_path):
    log = log_of(tmp_path)
    with (log / "large.jsonl").open("a") as file:
        file.write('{"what": "laun')

    assert read_timeline([log]).launches == TIMELINE.launches


def test_steps_that_were_not_written_are_counted_once(tmp_path):
    log = log_of(tmp_path)
    told = [{"what": "lost", "model": "small", "steps": steps} for steps in (3, 5)]
    write(log / "small.jsonl", start("small"), *told)

    assert lost_steps([log]) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{\n", "small.jsonl:1: not JSON"),
        ("[1]\n", "small.jsonl:1: not an event"),
        ('{"what": "launch"}\n', "an event without 'requests'"),
        ('{"what": "launch", "requests": [], "reason": "mood"}\n', "'mood' is not a valid LaunchReason"),
    ],
)
def test_what_is_no_event_log_is_named(tmp_path, text, said):
    path = tmp_path / "small.jsonl"
    path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        read_timeline([path])
    assert said in str(caught.value)


def test_a_file_that_is_not_there_and_a_folder_without_logs_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing.jsonl: No such file"):
        read_timeline([tmp_path / "missing.jsonl"])
    with pytest.raises(ConfigError, match="no event log"):
        read_timeline([tmp_path])
