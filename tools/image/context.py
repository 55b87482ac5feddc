"""Which files of a folder a build sees, by its .dockerignore.

Reads names only. As Docker does it: the last pattern that matches a path or a folder above it decides, `!`
takes a path in again, `**` stands for any number of folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: re.Pattern[str]
    is_exception: bool


def rules(text: str) -> tuple[Rule, ...]:
    """The patterns of a .dockerignore."""
    lines = [line.strip() for line in text.splitlines()]
    return tuple(_rule(line) for line in lines if line and not line.startswith("#"))


def _rule(line: str) -> Rule:
    is_exception = line.startswith("!")
    words = line.lstrip("!").strip("/")
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", words)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return Rule(re.compile("".join(known.get(piece, re.escape(piece)) for piece in pieces)), is_exception)


def is_ignored(path: str, given: tuple[Rule, ...]) -> bool:
    """`path` is relative to the context, with forward slashes."""
    parts = path.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    ignored = False
    for rule in given:
        if any(rule.pattern.fullmatch(part) for part in above):
            ignored = not rule.is_exception
    return ignored


def files(context: Path) -> Iterator[Path]:
    """Paths relative to `context` of every file that a COPY may take."""
    ignore = context / ".dockerignore"
    given = rules(ignore.read_text() if ignore.exists() else "")
    for folder, folders, names in os.walk(context):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            relative = (Path(folder) / name).relative_to(context)
            if not is_ignored(relative.as_posix(), given):
                yield relative
