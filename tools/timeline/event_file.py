"""Reads the event logs of a deployment's subservers (`python_backend/loops/event_log.py` writes them)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from router_backend.core.errors import ConfigError
from router_backend.core.request import RequestId
from router_backend.scheduler.batch import LaunchReason
from router_backend.simulation.launches import LaunchRecord
from tools.timeline.record import HandoffRecord, Timeline

SUFFIXES = (".jsonl.1", ".jsonl")
"""Of a model's two files, the older first."""


def log_files(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and those in the folders among `paths`; ConfigError when there is none."""
    found: list[Path] = []
    for path in paths:
        inside = [one for suffix in SUFFIXES for one in sorted(path.glob(f"*{suffix}"))]
        found += inside if path.is_dir() else [path]
    if not found:
        raise ConfigError(f"{', '.join(map(str, paths))}: no event log (*.jsonl) in it")
    return found


def read_timeline(paths: Sequence[Path]) -> Timeline:
    """Everything in these logs, in order of time; ConfigError names the file and line that is no event."""
    events = [event for path in log_files(paths) for event in _events(path)]
    models = next((tuple(event["models"]) for event in events if event["what"] == "start"), ())
    index = {name: model for model, name in enumerate(models)}
    try:
        launches = [_launch(event, index) for event in events if event["what"] == "launch"]
        handoffs = [_handoff(event, index) for event in events if event["what"] == "handoff"]
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{paths[0]}: an event without {error}") from error
    name = ", ".join(str(path) for path in paths)
    return Timeline(name, models, tuple(sorted(launches)), tuple(sorted(handoffs)))


def lost_steps(paths: Sequence[Path]) -> int:
    """Steps that a subserver could not write in time."""
    worst: dict[Path, int] = {}
    for path in log_files(paths):
        counts = [int(event["steps"]) for event in _events(path) if event["what"] == "lost"]
        worst[path] = max(counts, default=0)
    return sum(worst.values())


def _events(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    lines = text.splitlines()
    if text and not text.endswith("\n"):
        # A process that was killed leaves half a line.
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(event, dict) or "what" not in event:
            raise ConfigError(f"{path}:{number}: not an event")
        yield event


def _launch(event: dict[str, Any], index: dict[str, int]) -> LaunchRecord:
    names = tuple(map(RequestId, event["requests"]))
    reason = LaunchReason(event["reason"])
    return LaunchRecord(event["at"], index[event["model"]], reason, event["step_s"], names)


def _handoff(event: dict[str, Any], index: dict[str, int]) -> HandoffRecord:
    return HandoffRecord(event["at"], event["request"], index[event["source"]], index[event["target"]])
