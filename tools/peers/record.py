"""The rows of a benchmark as they are measured, in a file of JSON lines that a later run goes on with.

The first line says how it was measured; rows that were measured otherwise are never mixed in. A line that
a kill cut short is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tools.peers.figures import Row

Cell = tuple[str, int, int, int]


class RecordError(ValueError):
    """The file is of another benchmark; the message names what differs."""


class Record:
    """`rows` by cell, in the order in which they were measured."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Opens or makes `path`; RecordError when it was written under other `settings`."""
        self.path = path
        self.rows: dict[Cell, Row] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _whole_lines(path)
        if lines:
            _check(path, lines[0], settings)
            self.rows = {row.cell: row for row in map(_row, lines[1:])}
        else:
            lines = [json.dumps({"settings": settings})]
        path.write_text("".join(f"{line}\n" for line in lines))

    def add(self, row: Row) -> None:
        """Kept from here on, also when this process is killed."""
        self.rows[row.cell] = row
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _check(path: Path, line: str, settings: Mapping[str, Any]) -> None:
    try:
        found = json.loads(line)["settings"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: not a record of this benchmark: it begins with {line[:60]!r}") from error
    wrong = [key for key in {**found, **settings} if found.get(key) != settings.get(key)]
    if wrong:
        told = ", ".join(f"{key} {found.get(key)!r}, not {settings.get(key)!r}" for key in wrong)
        raise RecordError(f"{path}: measured with {told}: give the same options or another file")


def _row(line: str) -> Row:
    values = json.loads(line)
    return Row(**{field.name: values[field.name] for field in fields(Row)})
