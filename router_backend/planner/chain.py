"""The exact Markov chain of M models and N closed-loop requests.

Source: arXiv:2610.12242, Appendix D. Requests are exchangeable, so counts per model lump the chain
exactly. The event chain sees the system only right after completions and holds each state until the
next one; the paper's tick chain sees every quantum. Both give the same number; the event chain has
about 14 times fewer states, so the tick chain serves as a cross-check only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from router_backend import native
from router_backend.core.errors import CapacityError, ConfigError
from router_backend.native import ChainSpec, FloatArray, IntArray
from router_backend.planner.rounding import TickTable
from router_backend.planner.system import System

STATE_LIMIT = 1_000_000
IDLE = np.iinfo(np.int32).max


class Clock(Enum):
    """When the chain looks at the system: after every completion, or after every tick."""

    EVENT = 2**30
    TICK = 1


@dataclass(frozen=True, slots=True, eq=False)
class SolvedChain:
    """Stationary behaviour: states int32 [S, M, 3] = (waiting, running, residual ticks), pi float64 [S]."""

    states: IntArray
    stationary: FloatArray
    stride_ticks: int

    @property
    def state_count(self) -> int:
        return len(self.stationary)

    def columns(self) -> IntArray:
        """[3, M, S]: waiting, running, residual ticks. Sums over states run along memory so."""
        return np.ascontiguousarray(self.states.T)

    def holding_ticks(self) -> IntArray:
        """Ticks until the next transition of every state, [S]."""
        _, running, residual = self.columns()
        nearest = np.where(running > 0, residual, IDLE).min(axis=0)
        return np.asarray(np.minimum(nearest, self.stride_ticks), dtype=np.int32)


def checked_thresholds(system: System, thresholds: Sequence[int], concurrency: int) -> tuple[int, ...]:
    """The thresholds, if no distribution of the requests can strand them all; else a `ConfigError`."""
    if len(thresholds) != system.model_count:
        raise ConfigError(f"thresholds: {system.model_count} models expected, got {len(thresholds)}")
    for model, (threshold, cap) in enumerate(zip(thresholds, system.caps(concurrency), strict=True)):
        if not 1 <= threshold <= cap:
            raise ConfigError(f"thresholds[{model}]: must lie between 1 and {cap}, got {threshold}")
    if sum(thresholds) - len(thresholds) >= concurrency:
        raise ConfigError(
            f"thresholds: {list(thresholds)} can strand all {concurrency} requests; "
            f"sum(threshold - 1) must be below {concurrency}"
        )
    return tuple(thresholds)


def solve_chain(
    system: System,
    thresholds: Sequence[int],
    ticks: TickTable,
    clock: Clock = Clock.EVENT,
    state_limit: int = STATE_LIMIT,
) -> SolvedChain:
    """Enumerate and solve the chain of one threshold vector; `ticks` fixes the number of requests.

    Raises `CapacityError` beyond `state_limit` states: then `monte_carlo` is the way.
    """
    checked = checked_thresholds(system, thresholds, ticks.concurrency)
    spec = ChainSpec(
        floor_ticks=ticks.floor_ticks,
        ceil_probability=ticks.ceil_probability,
        routing=np.array(system.routing.probabilities, dtype=np.float64),
        thresholds=checked,
        caps=system.caps(ticks.concurrency),
        stride_ticks=clock.value,
        state_limit=state_limit,
    )
    try:
        graph = native.enumerate_chain(spec)
    except OverflowError as error:
        raise CapacityError(f"thresholds {list(checked)}: {error}") from error
    stationary = native.stationary_distribution(graph.row_start, graph.successor, graph.probability)
    return SolvedChain(graph.states, stationary, clock.value)
