"""What was measured survives a kill, and is never mixed with what was measured otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.peers.figures import Row
from tools.peers.record import Record, RecordError

SETTINGS = {"pair": "demo shapes", "seconds": 1.5}


def measured(system: str, n: int = 4) -> Row:
    return Row(
        system, n, 128, 256, 9.0, 8.0, 9.5, 1.0, None, None, 0.1, 2.0, 0.01, {"small": 0.01}, 50.0, 0.3
    )


def test_a_later_run_finds_the_rows_of_the_one_before(tmp_path: Path) -> None:
    first = Record(tmp_path / "new" / "rows.jsonl", SETTINGS)
    first.add(measured("ours"))
    first.add(measured("theirs"))

    again = Record(first.path, SETTINGS)
    assert list(again.rows.values()) == [measured("ours"), measured("theirs")]


def test_a_line_that_was_cut_short_is_measured_again(tmp_path: Path) -> None:
    first = Record(tmp_path / "rows.jsonl", SETTINGS)
    first.add(measured("ours"))
    with first.path.open("a") as file:
        file.write('{"system": "thei')

    again = Record(first.path, SETTINGS)
    again.add(measured("theirs"))
    assert [one.system for one in Record(first.path, SETTINGS).rows.values()] == ["ours", "theirs"]


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = Record(tmp_path / "rows.jsonl", SETTINGS).path

    with pytest.raises(RecordError, match=re.escape("seconds 1.5, not 3")):
        Record(path, SETTINGS | {"seconds": 3})


@pytest.mark.parametrize("text", ["no JSON\n", '{"rows": []}\n', "[]\n"])
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)

    with pytest.raises(RecordError, match="not a record of this benchmark"):
        Record(path, SETTINGS)
