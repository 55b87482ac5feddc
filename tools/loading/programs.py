"""Runs other people's load generators, and gives them a virtual environment of their own where they need one.

They bring up to 1.2 GB of packages that conflict with ours, so they never go into the project's environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.loading.work import LoadError

HOME = Path(__file__).resolve().parents[2] / ".run" / "load"
SECONDS_MAX = 1800
LINES = 12
"""Of a program's last words, when it fails."""

Run = Callable[[Sequence[str], Mapping[str, str], Path], None]


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
    """In `folder`; LoadError with the program's last words unless it ends well."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
            check=False,
        )
    except FileNotFoundError as error:
        raise LoadError(f"{command[0]} is not there: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise LoadError(f"{command[0]} did not end within {SECONDS_MAX} s") from error
    if done.returncode:
        words = "\n".join(done.stdout.strip().splitlines()[-LINES:])
        raise LoadError(f"{' '.join(command[:2])} ended with {done.returncode}:\n{words}")


def own_program(package: str, program: str, say: Callable[[str], None], home: Path = HOME) -> Path:
    """`program` of the pinned `package`, installed on first use into an environment of its own."""
    place = home / package
    found = place / "bin" / program
    if found.exists():
        return found
    say(f"Installing {package} into {place} (about 1 GB, some minutes, only this once)")
    home.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-m", "venv", "--clear", str(place)], {}, home)
    pip = [
        str(place / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        package,
    ]
    run(pip, {}, home)
    if not found.exists():
        raise LoadError(f"{package} installed no program {program}: another version may have renamed it")
    return found
