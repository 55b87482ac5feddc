"""Step latencies as whole ticks of one quantum, exactly or at random.

Rounding every latency to a coarse common quantum phase-locks the models and is wrong by up to 4.5 %.
Rounding each launch up or down at random, with the right mean, is not; see `random_ticks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd

import numpy as np

from router_backend.core.errors import ConfigError
from router_backend.native import FloatArray, IntArray

# Latencies given to a microsecond may share a quantum; longer numbers are measurements and share none.
RESOLUTION_MS = 1e-3
# A step of the fastest model may have this many ticks before its states become too many.
EXACT_TICKS_MAX = 64
# Ticks of the fastest model's step under random rounding.
RANDOM_TICKS = 3


@dataclass(frozen=True, slots=True, eq=False)
class TickTable:
    """Steps in ticks: `floor_ticks` of them, one more with `ceil_probability`; both [M, N].

    quantum_ms is the length of a tick; the mean of a step is exact in either rounding.
    """

    quantum_ms: float
    floor_ticks: IntArray
    ceil_probability: FloatArray

    @property
    def concurrency(self) -> int:
        return int(self.floor_ticks.shape[1])


def exact_ticks(step_ms: FloatArray, quantum_ms: float) -> TickTable:
    """Latencies [M, N] that are whole multiples of the quantum; a `ConfigError` names one that is not."""
    if not quantum_ms > 0.0:
        raise ConfigError(f"quantum_ms: must be above 0, got {quantum_ms:g}")
    ticks = np.rint(step_ms / quantum_ms)
    error = np.abs(ticks * quantum_ms - step_ms)
    if error.max() > RESOLUTION_MS / 2 or ticks.min() < 1:
        worst = step_ms[np.unravel_index(int(error.argmax()), error.shape)]
        raise ConfigError(f"quantum_ms: {worst:g} ms is not a whole multiple of {quantum_ms:g} ms")
    return TickTable(quantum_ms, ticks.astype(np.int32), np.zeros(step_ms.shape))


def random_ticks(step_ms: FloatArray, quantum_ms: float) -> TickTable:
    """Latencies [M, N] rounded up or down at each launch, up with the probability that keeps the mean."""
    if not 0.0 < quantum_ms <= step_ms.min():
        raise ConfigError(f"quantum_ms: must be above 0 and at most {step_ms.min():g}, got {quantum_ms:g}")
    ticks = step_ms / quantum_ms
    whole = np.floor(ticks + 1e-9)
    return TickTable(quantum_ms, whole.astype(np.int32), np.clip(ticks - whole, 0.0, 1.0))


def common_quantum_ms(step_ms: FloatArray) -> float | None:
    """The largest quantum of which every latency is a multiple; None unless all are whole microseconds."""
    microseconds = np.rint(step_ms / RESOLUTION_MS)
    if microseconds.min() < 1 or np.abs(microseconds * RESOLUTION_MS - step_ms).max() > RESOLUTION_MS / 1000:
        return None
    return reduce(gcd, (int(value) for value in microseconds.flat)) * RESOLUTION_MS


def rounded_ticks(step_ms: FloatArray) -> TickTable:
    """Random rounding at a third of the fastest step, for latencies that share no coarse quantum."""
    return random_ticks(step_ms, float(step_ms.min()) / RANDOM_TICKS)


def tick_table(step_ms: FloatArray) -> TickTable:
    """Exact where the latencies share a quantum that is not too fine, else rounded at random."""
    quantum_ms = common_quantum_ms(step_ms)
    if quantum_ms is not None and quantum_ms * EXACT_TICKS_MAX >= step_ms.min():
        return exact_ticks(step_ms, quantum_ms)
    return rounded_ticks(step_ms)
