"""Counts of observations by size, cheap enough for every token.

Observing only remembers: most of it happens between the end of one model's step and the launch of another's.
"""

from __future__ import annotations

from bisect import bisect_left
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


class Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._remembered: list[tuple[float, int]] = []

    def observe(self, value: float, times: int = 1) -> None:
        self._remembered.append((value, times))
        if len(self._remembered) > REMEMBERED_MAX:
            self._sort()

    def counts(self) -> HistogramCounts:
        self._sort()
        return HistogramCounts(self._bounds, tuple(self._counts), self._total)

    def _sort(self) -> None:
        for value, times in self._remembered:
            self._counts[bisect_left(self._bounds, value)] += times
            self._total += value * times
        self._remembered.clear()
