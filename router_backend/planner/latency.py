"""How long one step of a model takes, by batch size: t_m(b)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import numpy as np
import numpy.typing as npt

from router_backend.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StepLatency:
    """Measured points (batch, step_ms) in rising order of batch; straight lines between them.

    Below the first point the first value holds (a step is never cheaper than its smallest measured
    one); above the last point the last segment goes on, never downwards.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ConfigError("steps: at least one measured batch size is needed")
        for i, (batch, step_ms) in enumerate(self.points):
            if batch < 1:
                raise ConfigError(f"steps[{i}].batch: must be at least 1, got {batch}")
            if not (isfinite(step_ms) and step_ms > 0.0):
                raise ConfigError(f"steps[{i}].step_ms: must be above 0 ms, got {step_ms:g}")
        for i, (left, right) in enumerate(pairwise(self.points)):
            if left[0] >= right[0]:
                raise ConfigError(f"steps[{i + 1}].batch: must be above {left[0]}, got {right[0]}")

    def step_ms(self, batch: int) -> float:
        """Milliseconds of a step with `batch` requests."""
        batches, values = zip(*self.points, strict=True)
        if batch <= batches[-1] or len(batches) == 1:
            return float(np.interp(batch, batches, values))
        slope = (values[-1] - values[-2]) / (batches[-1] - batches[-2])
        return float(values[-1] + max(slope, 0.0) * (batch - batches[-1]))


def constant(step_ms: float) -> StepLatency:
    """The same time for every batch size."""
    return StepLatency(((1, step_ms),))


def sloped(step_ms: float, slope_ms: float) -> StepLatency:
    """step_ms for one request and slope_ms more for each further one."""
    return StepLatency(((1, step_ms), (2, step_ms + slope_ms)))


def step_table(latencies: Iterable[StepLatency], concurrency: int) -> npt.NDArray[np.float64]:
    """Milliseconds of every step, float64 [M, N]: batch b of model m at [m, b - 1]."""
    return np.array([[one.step_ms(batch) for batch in range(1, concurrency + 1)] for one in latencies])
