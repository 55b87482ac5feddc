"""What was measured at a cutoff, and how the cutoff for a wished share is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from router_backend.core.errors import ConfigError

CLOSE = 0.005
"""A share this near to the wished one needs no better cutoff."""
TRIES = 10


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy with parameters; `cutoff` is None where it has none."""

    policy: str
    cutoff: float | None
    params: tuple[tuple[str, float | str], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One policy at one cutoff, over all prompts."""

    policy: str
    cutoff: float | None
    large_share: float
    """Of the committed tokens, those that the last model wrote."""
    discarded_share: float
    """Of all sampled tokens, those that were thrown away."""
    handoffs_per_token: float
    accuracy: float | None
    """Answers that match in full, where the prompts have answers."""


Measure = Callable[[float], Point]


def found(points: Sequence[Point], target: float, measure: Measure) -> Point:
    """The point whose share is nearest to `target`, by halving between the two points around it.

    ConfigError when all of `points` lie on one side of it.
    """
    ordered = sorted(points, key=_cutoff)
    best = min(ordered, key=lambda point: abs(point.large_share - target))
    around = [
        pair
        for pair in pairwise(ordered)
        if min(_shares(pair)) <= target <= max(_shares(pair)) and pair[0].large_share != pair[1].large_share
    ]
    if not around and abs(best.large_share - target) > CLOSE:
        low, high = (bound(point.large_share for point in ordered) for bound in (min, max))
        reached = f"between {low:.3f} and {high:.3f}"
        raise ConfigError(f"a share of {target:g} is not {reached}: give wider --cutoffs")
    for _ in range(TRIES):
        if abs(best.large_share - target) <= CLOSE:
            break
        first, second = around[0]
        middle = measure((_cutoff(first) + _cutoff(second)) / 2.0)
        best = min(best, middle, key=lambda point: abs(point.large_share - target))
        is_left = min(_shares((first, middle))) <= target <= max(_shares((first, middle)))
        around = [(first, middle) if is_left else (middle, second)]
    return best


def _cutoff(point: Point) -> float:
    assert point.cutoff is not None, point
    return point.cutoff


def _shares(pair: tuple[Point, Point]) -> tuple[float, float]:
    return pair[0].large_share, pair[1].large_share


def table(points: Sequence[Point]) -> str:
    """The points for a person; columns in Markdown too, as they are separated by |."""
    lines = [
        "| policy | cutoff | large share | discarded | hand-offs / token | accuracy |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for point in points:
        cutoff = "-" if point.cutoff is None else f"{point.cutoff:.4g}"
        accuracy = "-" if point.accuracy is None else f"{point.accuracy:.1%}"
        costs = f"{point.discarded_share:.1%} | {point.handoffs_per_token:.3f}"
        lines.append(f"| {point.policy} | {cutoff} | {point.large_share:.1%} | {costs} | {accuracy} |")
    return "\n".join(lines)
