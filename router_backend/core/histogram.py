"""Counts of observations by size, cheap enough for every token.

Observing only remembers: most of it happens between the end of one model's step and the launch of another's.
One thread observes, one reads; they may be two. The invariant: an observation is counted once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
BRIEF = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, *SECONDS[:10])
"""Seconds, for what is done within a step."""
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SIZES = tuple(float(1 << power) for power in range(16))


@dataclass(frozen=True, slots=True)
class HistogramCounts:
    """`counts[i]` observations are at most `bounds[i]` and above the bound before; the last are larger."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


REMEMBERED_MAX = 1024
"""Observations that wait for a reader; beyond it the observer counts them itself."""


class Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._remembered: deque[tuple[float, int]] = deque()
        self._observer = _Tally(bounds)
        self._reader = _Tally(bounds)

    def observe(self, value: float, times: int = 1) -> None:
        self._remembered.append((value, times))
        if len(self._remembered) > REMEMBERED_MAX:
            self._observer.take(self._remembered)

    def counts(self) -> HistogramCounts:
        """What the observer is counting at this very moment may be missing, until the next call."""
        self._reader.take(self._remembered)
        ours, theirs = self._reader, self._observer
        counts = tuple(map(sum, zip(ours.counts, theirs.counts, strict=True)))
        return HistogramCounts(self._bounds, counts, ours.total + theirs.total)


class _Tally:
    """Counts of one thread: adding is reading and writing, so two threads would lose some in a common one."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def take(self, remembered: deque[tuple[float, int]]) -> None:
        """Count what is remembered, each once whoever else takes meanwhile."""
        while True:
            try:
                value, times = remembered.popleft()
            except IndexError:
                return
            self.counts[bisect_left(self._bounds, value)] += times
            self.total += value * times
