"""A subserver's event log: one JSON line per launch and per hand-off, for `tools.trace_timeline`.

Owns its file and its thread. `note` is called by the decode loop and only remembers; JSON and disk are the
log's own thread's. Nothing of a prompt or an answer is written: names of models, ids of requests, times
of the machine's monotonic clock, which all processes of a host share. The invariant: memory and disk are
bounded, and a log that cannot be written never stops a request.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from router_backend.core.effects import Effect, Send
from router_backend.core.errors import ConfigError
from router_backend.handoff.message import Handoff
from router_backend.scheduler.batch import BatchPlan

_log = logging.getLogger(__name__)

FILE_BYTES_MAX = 32 << 20
"""A fuller file becomes `<model>.jsonl.1`, in place of the one before: two files at most."""
STEPS_MAX = 4096
"""Steps that may wait to be written; later ones are counted as lost."""
FLUSH_S = 0.25
DIGITS = 9


class Step(NamedTuple):
    """One batch that has run: when (seconds, monotonic), what, and what followed."""

    started_at: float
    ended_at: float
    plan: BatchPlan
    effects: list[Effect]


class EventLog:
    """`note` from the decode loop, `stop` from any thread, everything else in `run`'s thread."""

    def __init__(self, folder: Path, models: tuple[str, ...], index: int) -> None:
        """`models` are the names of all subservers, `index` is this one.

        Opens `folder`/<model>.jsonl to append; ConfigError when that cannot be."""
        self._path = folder / f"{models[index]}.jsonl"
        self._models = models
        self._index = index
        self._steps: deque[Step] = deque()
        self._lost = 0
        self._lost_written = 0
        self._ending = threading.Event()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: FileIO | None = self._open()
        except OSError as error:
            raise ConfigError(f"event_log: {self._path}: {error.strerror}") from error

    def note(self, step: Step) -> None:
        """Remember `step`; a fraction of a microsecond."""
        if len(self._steps) < STEPS_MAX:
            self._steps.append(step)
        else:
            self._lost += 1

    def run(self) -> None:
        """Write what was noted, a few times a second, until `stop`."""
        while not self._ending.wait(FLUSH_S):
            self.flush()
        self.flush()
        if self._file is not None:
            self._file.close()

    def stop(self) -> None:
        """End `run` after it has written everything."""
        self._ending.set()

    def flush(self) -> None:
        """Write what was noted so far. After an error the log is closed, and the error is in the server's."""
        text = "".join(self._lines())
        if self._file is None or not text:
            return
        try:
            self._file.write(text.encode())
            if self._file.tell() > FILE_BYTES_MAX:
                self._rotate()
        except OSError as error:
            _log.error("the event log ends here: %s: %s", self._path, error.strerror)
            self._file.close()
            self._file = None

    def _lines(self) -> Iterator[str]:
        for _ in range(len(self._steps)):
            for event in self._events(self._steps.popleft()):
                yield json.dumps(event) + "\n"
        lost = self._lost
        if lost > self._lost_written:
            self._lost_written = lost
            yield json.dumps({"what": "lost", "model": self._models[self._index], "steps": lost}) + "\n"

    def _events(self, step: Step) -> Iterator[dict[str, object]]:
        model = self._models[self._index]
        yield {
            "what": "launch",
            "at": round(step.started_at, DIGITS),
            "model": model,
            "reason": step.plan.reason.value,
            "step_s": round(step.ended_at - step.started_at, DIGITS),
            "requests": [row.request_id for row in step.plan.rows],
        }
        for effect in step.effects:
            if isinstance(effect, Send) and isinstance(effect.message, Handoff):
                yield {
                    "what": "handoff",
                    "at": round(step.ended_at, DIGITS),
                    "request": effect.message.request_id,
                    "source": model,
                    "target": self._models[effect.target],
                }

    def _open(self) -> FileIO:
        """The file, unbuffered, with a line that says who writes from here on."""
        file = self._path.open("ab", buffering=0)
        start = {"what": "start", "model": self._models[self._index], "models": self._models}
        file.write(json.dumps(start | {"pid": os.getpid()}).encode() + b"\n")
        return file

    def _rotate(self) -> None:
        assert self._file is not None, "only an open log is full"
        self._file.close()
        self._path.replace(self._path.with_suffix(".jsonl.1"))
        self._file = self._open()
