"""What several seeds say about accuracy against throughput, and how sure they are.

Pure arithmetic. Everything is compared within a seed (the same questions, the same minutes of a noisy
machine) and only then averaged; intervals are Student's, 95 % over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

T_95 = (math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Two-sided quantiles of Student's t by degrees of freedom; beyond nine, the normal distribution's."""
NORMAL_95 = 1.960
SMALL, LARGE, QUERY_LEVEL, RANDOM = "small_only", "large_only", "query_level", "random"


@dataclass(frozen=True, slots=True)
class Seen:
    """One policy under one seed; `tokens_per_s` is the median of its runs."""

    policy: str
    cutoff: float | None
    accuracy: float
    large_share: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Interval:
    """Mean over the seeds, plus or minus `half`."""

    mean: float
    half: float

    @property
    def least(self) -> float:
        return self.mean - self.half


@dataclass(frozen=True, slots=True)
class Point:
    """A policy's accuracy and speed, and how far it lies above what one could mix without it.

    `above_line`: accuracy minus the straight line between small-only and large-only at its throughput.
    `above_query`: accuracy minus query-level routing's curve there. Outside of their ends both count the end.
    """

    policy: str
    cutoff: float | None
    accuracy: Interval
    tokens_per_s: Interval
    large_share: float
    above_line: Interval
    above_query: Interval


def points(seeds: Sequence[Sequence[Seen]]) -> list[Point]:
    """One per policy and cutoff, in the order of the first seed."""
    found = []
    for number, first in enumerate(seeds[0]):
        ones = [seen[number] for seen in seeds]
        lines = [curve(seen, (SMALL, LARGE)) for seen in seeds]
        queries = [curve(seen, (SMALL, QUERY_LEVEL, LARGE)) for seen in seeds]
        found.append(
            Point(
                first.policy,
                first.cutoff,
                interval([one.accuracy for one in ones]),
                interval([one.tokens_per_s for one in ones]),
                float(np.mean([one.large_share for one in ones])),
                interval([above(one, line) for one, line in zip(ones, lines, strict=True)]),
                interval([above(one, line) for one, line in zip(ones, queries, strict=True)]),
            )
        )
    return found


def curve(seen: Sequence[Seen], policies: Sequence[str]) -> list[tuple[float, float]]:
    """(tokens/s, accuracy) of these policies, slowest first."""
    return sorted((one.tokens_per_s, one.accuracy) for one in seen if one.policy in policies)


def above(one: Seen, line: Sequence[tuple[float, float]]) -> float:
    """Accuracy over the line at the same throughput."""
    speeds, accuracies = zip(*line, strict=True)
    return one.accuracy - float(np.interp(one.tokens_per_s, speeds, accuracies))


def interval(values: Sequence[float]) -> Interval:
    """Of one value: no interval, said as an infinite one."""
    count = len(values)
    if count < 2:
        return Interval(float(values[0]), math.inf)
    quantile = T_95[count - 1] if count <= len(T_95) else NORMAL_95
    return Interval(float(np.mean(values)), quantile * float(np.std(values, ddof=1)) / math.sqrt(count))
