"""Throughput of the modes with a barrier: every step of every model, or one model at a time.

They are what asynchronous hand-off is compared with (arXiv:2610.12242, section 5). Between two barriers
nothing runs, so the counts per model are the whole state and the latencies need no common quantum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from router_backend.native import FloatArray, stationary_distribution
from router_backend.native.chain_plain import multinomial
from router_backend.planner.latency import step_table
from router_backend.planner.system import System, checked_concurrency

Counts = tuple[int, ...]


class BarrierMode(Enum):
    """Which models start a batch when a barrier opens.

    STEP_SYNC      every model with work; the next round waits for the slowest
    SLOWEST_FIRST  model-sync: the slowest model that anyone waits for (alternates under R2R)
    EXHAUST        model-sync: the same model until nobody waits for it, then the next in turn
    LONGEST_FIRST  model-sync: the longest queue, the faster model on a tie
    """

    STEP_SYNC = "step_sync"
    SLOWEST_FIRST = "slowest_first"
    EXHAUST = "exhaust"
    LONGEST_FIRST = "longest_first"


@dataclass(frozen=True, slots=True)
class _Barrier:
    """Requests per model at a barrier, and the model that ran last (0 where the mode ignores it)."""

    counts: Counts
    last: int


@dataclass(slots=True, eq=False)
class _BarrierChain:
    system: System
    mode: BarrierMode
    step_ms: FloatArray

    def launched(self, barrier: _Barrier) -> tuple[int, ...]:
        """Models that start a batch."""
        waiting = [model for model, count in enumerate(barrier.counts) if count > 0]
        if self.mode is BarrierMode.STEP_SYNC:
            return tuple(waiting)
        if self.mode is BarrierMode.EXHAUST:
            return (min(waiting, key=lambda model: (model - barrier.last) % len(barrier.counts)),)
        if self.mode is BarrierMode.LONGEST_FIRST:
            return (max(waiting, key=lambda model: (barrier.counts[model], -self.step_ms[model, 0], -model)),)
        return (max(waiting, key=lambda model: (self.step_ms[model, 0], model)),)

    def batch(self, barrier: _Barrier, model: int) -> int:
        return min(barrier.counts[model], self.system.caps(self.step_ms.shape[1])[model])

    def duration_ms(self, barrier: _Barrier) -> float:
        return max(
            float(self.step_ms[model, self.batch(barrier, model) - 1]) for model in self.launched(barrier)
        )

    def tokens(self, barrier: _Barrier) -> float:
        per_step = self.system.routing.tokens_per_step()
        return sum(self.batch(barrier, model) * per_step[model] for model in self.launched(barrier))

    def successors(self, barrier: _Barrier) -> Iterator[tuple[_Barrier, float]]:
        launched = self.launched(barrier)
        last = launched[0] if self.mode is BarrierMode.EXHAUST else 0
        for counts, probability in self._splits(barrier, launched):
            yield _Barrier(counts, last), probability

    def _splits(self, barrier: _Barrier, launched: tuple[int, ...]) -> Iterator[tuple[Counts, float]]:
        """Requests per model after the batches of `launched`; those beyond a cap stay where they are."""
        if not launched:
            yield barrier.counts, 1.0
            return
        model, others = launched[0], launched[1:]
        batch = self.batch(barrier, model)
        ways = multinomial(batch, self.system.routing.probabilities[model])
        for rest, rest_probability in self._splits(barrier, others):
            for moved, probability in ways:
                counts = [kept + extra for kept, extra in zip(rest, moved, strict=True)]
                counts[model] -= batch
                yield tuple(counts), probability * rest_probability


def predict_barrier(system: System, mode: BarrierMode, concurrency: int) -> float:
    """Committed tokens per second of `concurrency` closed-loop requests under a barrier mode."""
    chain = _BarrierChain(system, mode, step_table(system.latencies, checked_concurrency(concurrency)))
    barriers = [_Barrier((concurrency,) + (0,) * (system.model_count - 1), 0)]
    index = {barriers[0]: 0}
    row_start: list[int] = [0]
    successor: list[int] = []
    probability: list[float] = []
    for barrier in barriers:  # grows while it is read: breadth-first search
        row: dict[int, float] = {}
        for found, chance in chain.successors(barrier):
            if index.setdefault(found, len(barriers)) == len(barriers):
                barriers.append(found)
            row[index[found]] = row.get(index[found], 0.0) + chance
        successor += row.keys()
        probability += row.values()
        row_start.append(len(successor))
    stationary = stationary_distribution(
        np.array(row_start, dtype=np.int64),
        np.array(successor, dtype=np.int32),
        np.array(probability, dtype=np.float64),
    )
    tokens = stationary @ np.array([chain.tokens(barrier) for barrier in barriers])
    return float(1000.0 * tokens / (stationary @ [chain.duration_ms(barrier) for barrier in barriers]))
