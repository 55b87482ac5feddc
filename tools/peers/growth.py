"""How the time of one token grows with context, output length and concurrency: exponents of power laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tools.peers.figures import Row

AXES = ("context", "output_tokens", "concurrency")


def exponents(rows: Sequence[Row]) -> list[dict[str, object]]:
    """By system and axis, the slope of log(seconds per token of one request) over log(axis).

    Fitted by least squares within the rows that agree in everything else, then averaged; an axis that was not
    varied has no entry. 0 = a token costs the same however long or busy; 1 = twice for the double.
    """
    found = []
    for system in dict.fromkeys(one.system for one in rows):
        own = [one for one in rows if one.system == system]
        for axis in AXES:
            slopes = [slope for line in _lines(own, axis) if (slope := _slope(line)) is not None]
            if slopes:
                found.append({"system": system, "axis": axis, "exponent": float(np.mean(slopes))})
    return found


def _lines(rows: Sequence[Row], axis: str) -> list[list[tuple[float, float]]]:
    """(axis value, seconds per token) of rows that differ in this axis only."""

    def others(one: Row) -> tuple[int, ...]:
        return tuple(getattr(one, name) for name in AXES if name != axis)

    grouped = itertools.groupby(sorted(rows, key=others), key=others)
    return [[(getattr(one, axis), one.concurrency / one.throughput) for one in group] for _, group in grouped]


def _slope(line: Sequence[tuple[float, float]]) -> float | None:
    if len({value for value, _ in line}) < 2:
        return None
    x, y = np.log(np.array(line)).T
    slope = float(np.polyfit(x, y, 1)[0])
    return slope if math.isfinite(slope) else None
