"""How pip reaches its packages on this machine, so that pip inside a clean root reaches them too.

Reads pip's own answer and writes nothing. On a machine without settings both parts are empty.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PATH = re.compile(r"(?:file://)?(/[^\s]+)")
KEYS = frozenset(
    {"cert", "constraint", "extra-index-url", "find-links", "index-url", "timeout", "trusted-host"}
)


@dataclass(frozen=True, slots=True)
class PipSettings:
    """The text of a pip.conf, and the files and folders of this machine that it names."""

    text: str
    paths: tuple[Path, ...]


def pip_settings() -> PipSettings:
    """Of the pip that belongs to the running Python."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    return settings_from(listed.stdout.splitlines())


def settings_from(lines: Iterable[str]) -> PipSettings:
    """From lines like `global.find-links='/wheels'`; a variable of the environment wins over a file."""
    found: dict[str, str] = {}
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        key = name.rpartition(".")[2].removeprefix("default-")
        if key in KEYS:
            found[key] = str(ast.literal_eval(value))
    if not found:
        return PipSettings("", ())
    named = [path for key, value in found.items() for path in _paths(key, value)]
    body = [f"{key} = {' '.join(value.split())}" for key, value in sorted(found.items())]
    return PipSettings("\n".join(["[global]", *body, ""]), tuple(path for path in named if path.exists()))


def _paths(key: str, value: str) -> list[Path]:
    """An index's pages point to files beside the folder that they are in."""
    found = [Path(match) for match in _PATH.findall(re.sub(r"https?://\S+", "", value))]
    return [path.parent for path in found] if key.endswith("index-url") else found
