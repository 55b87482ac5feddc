"""When a front must look again at answers that hold text back, and at which.

Decides on times it is given. A timer per answer at most, set when its text begins to wait: what left earlier,
by count or with the end, is noticed when the timer fires. Invariant: an answer whose text waits has a timer
that fires no later than the text is due.
"""

from __future__ import annotations

import heapq
import itertools

from python_backend.loops.open_request import OpenRequest
from router_backend.stream.answer import Answer

NEVER = float("inf")


class FlushTimes:
    def __init__(self) -> None:
        self._timers: list[tuple[float, int, OpenRequest]] = []
        self._numbers = itertools.count()

    @property
    def next_at(self) -> float:
        """When `due` has something to say; infinite while no text waits."""
        return self._timers[0][0] if self._timers else NEVER

    def note(self, opened: OpenRequest) -> None:
        """`opened` has new text, which left or waits. Text that only its reader holds up is not timed."""
        due_at = opened.answer.due_at if opened.answer is not None else NEVER
        if not opened.is_timed and -NEVER < due_at < NEVER:
            opened.is_timed = True
            heapq.heappush(self._timers, (due_at, next(self._numbers), opened))

    def due(self, now: float) -> list[tuple[OpenRequest, Answer]]:
        """Those whose text may leave now; who has newer text that must wait is timed again."""
        due = []
        while self.next_at <= now:
            _, _, opened = heapq.heappop(self._timers)
            opened.is_timed = False
            if opened.answer is not None and opened.answer.due_at <= now:
                due.append((opened, opened.answer))
            else:
                self.note(opened)
        return due
