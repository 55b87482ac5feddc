"""A Dockerfile as data: its stages, and in each the instructions in order.

Reads text, runs nothing. Only the part of the language that our files use is known; anything else is a
DockerfileError with its line, never a step left out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

KNOWN = frozenset(
    (
        *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN"),
        *("SHELL", "STOPSIGNAL", "USER", "WORKDIR"),
    )
)

_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?::([-+])([^}]*))?\})")
_FLAG = re.compile(r"--([\w-]+)=(\S+)\s+")


class DockerfileError(Exception):
    """Not a Dockerfile that can be run here; names the line."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One logical line."""

    word: str
    value: str
    flags: tuple[tuple[str, str], ...] = ()
    line: int = 0

    def flag(self, name: str) -> str:
        """The flag's last value, empty when it is not given."""
        return dict(self.flags).get(name, "")

    @property
    def array(self) -> tuple[str, ...] | None:
        """The value in exec form, None when it is shell form."""
        if not self.value.startswith("["):
            return None
        try:
            return tuple(json.loads(self.value))
        except ValueError as error:
            raise DockerfileError(f"line {self.line}: {self.word}: not a JSON array: {error}") from error

    def __str__(self) -> str:
        return " ".join([self.word, *(f"--{name}={value}" for name, value in self.flags), self.value])


@dataclass(frozen=True, slots=True)
class Stage:
    """What lies between one FROM and the next."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    arguments: Mapping[str, str]
    """Defaults of the ARGs in front of the first FROM; they count in FROM lines only."""
    stages: tuple[Stage, ...]


def parsed(text: str, arguments: Mapping[str, str]) -> Dockerfile:
    """The file with build arguments filled into its FROM lines."""
    lines = list(instructions(text))
    starts = [place for place, item in enumerate(lines) if item.word == "FROM"]
    if not starts:
        raise DockerfileError("no FROM: nothing to start from")
    before = lines[: starts[0]]
    for item in before:
        if item.word != "ARG":
            raise DockerfileError(f"line {item.line}: {item.word} in front of the first FROM")
    known = dict(argument(item, arguments) for item in before)
    ends = [*starts[1:], len(lines)]
    stages = tuple(_stage(lines[start:end], known) for start, end in zip(starts, ends, strict=True))
    return Dockerfile(known, stages)


def _stage(lines: list[Instruction], known: Mapping[str, str]) -> Stage:
    words = expanded(lines[0].value, known).split()
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != "AS"):
        raise DockerfileError(f"line {lines[0].line}: FROM {lines[0].value}: not `FROM image [AS name]`")
    return Stage(words[0], words[2] if len(words) == 3 else "", tuple(lines[1:]))


def instructions(text: str) -> Iterator[Instruction]:
    """Logical lines in order, comments taken out."""
    for number, line in _logical(text):
        word, _, value = line.partition(" ")
        if word.upper() not in KNOWN:
            raise DockerfileError(f"line {number}: {word}: not one of {', '.join(sorted(KNOWN))}")
        flags, rest = _flags(value.strip())
        if rest.startswith("<<"):
            raise DockerfileError(f"line {number}: {word}: here-documents are not known here")
        yield Instruction(word.upper(), rest, flags, number)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    parts: list[str] = []
    start = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        start = start if parts else number
        parts.append(line.rstrip("\\").strip() if line.endswith("\\") else line.strip())
        if not line.endswith("\\"):
            yield start, " ".join(parts)
            parts = []
    if parts:
        raise DockerfileError(f"line {start}: the last line ends in a backslash")


def _flags(value: str) -> tuple[tuple[tuple[str, str], ...], str]:
    flags = []
    while match := _FLAG.match(value):
        flags.append((match[1], match[2]))
        value = value[match.end() :]
    return tuple(flags), value


def argument(item: Instruction, given: Mapping[str, str]) -> tuple[str, str]:
    """Name and value of an ARG: what was given, else its default, else empty."""
    name, _, default = item.value.partition("=")
    return name, given.get(name, default.strip('"'))


def pairs(item: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """`KEY=value ...` of ENV and LABEL."""
    found = {}
    for word in shlex.split(item.value):
        key, equals, value = word.partition("=")
        if not equals:
            raise DockerfileError(f"line {item.line}: {item.word} {word}: write KEY=value")
        found[key] = expanded(value, variables)
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+instead}` filled in; an unknown name is empty."""

    def filled(match: re.Match[str]) -> str:
        value = variables.get(match[1] or match[2] or "", "")
        if match[0] == "\\$":
            return "$"
        if match[3] == "-":
            return value or match[4]
        return (match[4] if value else "") if match[3] == "+" else value

    return _VARIABLE.sub(filled, text)
