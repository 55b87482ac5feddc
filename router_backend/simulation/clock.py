"""Simulated time: what happens next.

Owns the order of events and the only `now` of a simulation. Must never read a real clock. Invariant:
events leave by (time, serial number), so equal times keep the order in which they were scheduled.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Event = TypeVar("Event")


@dataclass(slots=True)
class ManualClock(Generic[Event]):
    """A heap of events; `now` (seconds) moves only when one is taken out."""

    now: float = 0.0
    _heap: list[tuple[float, int, Event]] = field(default_factory=list)
    _serial: int = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_at(self) -> float | None:
        """When the next event is due; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def schedule(self, at: float, event: Event) -> None:
        """Let `event` happen at `at`, not before now."""
        assert at >= self.now, f"{event} at {at} is in the past of {self.now}"
        self._serial += 1
        heapq.heappush(self._heap, (at, self._serial, event))

    def pop(self) -> Event:
        """The next event; it is `now` its time."""
        self.now, _, event = heapq.heappop(self._heap)
        return event
