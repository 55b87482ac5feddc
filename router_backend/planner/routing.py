"""Where requests go after a step, and how many tokens that step commits.

Source: arXiv:2610.12242, Appendix D: routing matrix P and commit matrix C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from router_backend.core.errors import ConfigError

Matrix = tuple[tuple[float, ...], ...]

ROW_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Routing:
    """The two matrices of a routing algorithm over M models; model 0 is the entry.

    probabilities  P, M rows that sum to 1: chance that a request goes from i to j after a step of i
    commits        C, M rows: tokens committed when it does (0 where the sampled token is discarded)
    """

    probabilities: Matrix
    commits: Matrix

    def __post_init__(self) -> None:
        _check_shape("routing", self.probabilities, len(self.probabilities))
        _check_shape("commits", self.commits, len(self.probabilities))
        for i, row in enumerate(self.probabilities):
            if max(row) > 1.0 or abs(sum(row) - 1.0) > ROW_SUM_TOLERANCE:
                raise ConfigError(f"routing[{i}]: probabilities must sum to 1, got {sum(row):g}")
        if len(self.closed_classes()) > 1:
            raise ConfigError("routing: requests end up in separate groups of models; plan each group alone")

    @property
    def model_count(self) -> int:
        return len(self.probabilities)

    def tokens_per_step(self) -> tuple[float, ...]:
        """Mean tokens that one request commits in one step of each model."""
        pairs = zip(self.probabilities, self.commits, strict=True)
        return tuple(sum(p * c for p, c in zip(*rows, strict=True)) for rows in pairs)

    def closed_classes(self) -> set[frozenset[int]]:
        """Groups of models, reachable from the entry, that a request can never leave again."""
        reached = [self._reachable(i) for i in range(self.model_count)]
        return {reached[i] for i in reached[0] if all(i in reached[j] for j in reached[i])}

    def _reachable(self, start: int) -> frozenset[int]:
        reached, frontier = {start}, [start]
        while frontier:
            row = self.probabilities[frontier.pop()]
            fresh = [j for j, p in enumerate(row) if p > 0.0 and j not in reached]
            reached.update(fresh)
            frontier += fresh
        return frozenset(reached)


def _check_shape(field: str, matrix: Matrix, size: int) -> None:
    if size == 0:
        raise ConfigError(f"{field}: at least one model is needed")
    if len(matrix) != size:
        raise ConfigError(f"{field}: {size} rows expected, one per model, got {len(matrix)}")
    for i, row in enumerate(matrix):
        if len(row) != size:
            raise ConfigError(f"{field}[{i}]: {size} numbers expected, one per model, got {len(row)}")
        if not all(isfinite(value) and value >= 0.0 for value in row):
            raise ConfigError(f"{field}[{i}]: every number must be finite and 0 or more, got {list(row)}")


def checked_probability(field: str, value: float) -> float:
    """The value, if it lies in 0..1; a `ConfigError` naming the field otherwise."""
    if not 0.0 <= value <= 1.0:
        raise ConfigError(f"{field}: must lie between 0 and 1, got {value:g}")
    return value


def discard_and_return(route_probability: float) -> Routing:
    """R2R: leave with probability p and discard the token; the large model writes one and returns."""
    p = checked_probability("route_probability", route_probability)
    return Routing(((1.0 - p, p), (1.0, 0.0)), ((1.0, 0.0), (1.0, 0.0)))


def discard_and_stay(route_probability: float, return_probability: float) -> Routing:
    """R-Stitch: leave with probability p and discard the token; the large model returns with q."""
    p = checked_probability("route_probability", route_probability)
    q = checked_probability("return_probability", return_probability)
    return Routing(((1.0 - p, p), (q, 1.0 - q)), ((1.0, 0.0), (1.0, 1.0)))


def mixture(weights: Sequence[float]) -> Routing:
    """ME: after every token the next author is drawn by weight; every token is kept."""
    size = len(weights)
    return Routing((tuple(weights),) * size, ((1.0,) * size,) * size)
