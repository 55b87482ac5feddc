"""What happened in a simulation, as data, in order.

Two runs of one seed have equal traces, also in two processes: that is what the digest is for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple


class TraceEvent(NamedTuple):
    """`where` is a model, or -1 for the home; `detail` holds everything else there is to know."""

    at: float
    what: str
    where: int
    detail: str


@dataclass(slots=True)
class Trace:
    events: list[TraceEvent] = field(default_factory=list)

    def add(self, at: float, what: str, where: int, detail: str) -> None:
        self.events.append(TraceEvent(at, what, where, detail))

    def digest(self) -> str:
        """SHA-256 of all events, in hexadecimal."""
        return sha256(json.dumps(self.events).encode()).hexdigest()

    def lines(self) -> list[str]:
        """For people."""
        return [f"{event.at:10.3f} {event.where:3d} {event.what:8s} {event.detail}" for event in self.events]
