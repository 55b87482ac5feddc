"""`python -m tools.trace_timeline`: from the logs of a live server to a summary, a picture, a trace."""

from __future__ import annotations

import json

import pytest

from tests.unit.tools.timeline.samples import TIMELINE
from tests.unit.tools.timeline.test_event_file import log_of, start, write
from tools import trace_timeline
from tools.timeline.chrome import trace_document


def test_without_an_output_the_summary_is_printed(tmp_path, capsys):
    assert trace_timeline.main([str(log_of(tmp_path))]) == 0
    assert capsys.readouterr().out.splitlines() == TIMELINE.summary()


def test_the_trace_is_written_as_json(tmp_path):
    trace_timeline.main([str(log_of(tmp_path)), "--chrome", str(tmp_path / "trace.json")])

    found = json.loads((tmp_path / "trace.json").read_text())
    assert found["traceEvents"][1:] == trace_document(TIMELINE)["traceEvents"][1:]


def test_a_part_of_the_log_may_be_chosen(tmp_path, capsys):
    trace_timeline.main([str(log_of(tmp_path)), "--start", "1.5", "--seconds", "1"])

    _, small, large = capsys.readouterr().out.splitlines()
    assert (small.split()[1], large.split()[1]) == ("0", "1")


def test_the_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    trace_timeline.main([str(log_of(tmp_path)), "--out", str(tmp_path / "out.png")])

    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_steps_that_are_missing_are_told(tmp_path, capsys):
    log = log_of(tmp_path)
    write(log / "third.jsonl", start("third"), {"what": "lost", "model": "third", "steps": 7})
    trace_timeline.main([str(log)])

    assert capsys.readouterr().out.splitlines()[-1].startswith("7 steps are missing")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--start", "60"], "no launch between 60 s and"),
        (["--chrome", "no-such-folder/trace.json"], "--chrome: no-such-folder/trace.json: No such file"),
    ],
)
def test_what_cannot_be_done_is_named(tmp_path, capsys, options, said):
    assert trace_timeline.main([str(log_of(tmp_path)), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_without_logs_is_named(tmp_path, capsys):
    assert trace_timeline.main([str(tmp_path)]) == 2
    assert "no event log (*.jsonl) in it" in capsys.readouterr().err
