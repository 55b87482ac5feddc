"""Throughput of one threshold vector, from the exact chain.

Source: arXiv:2610.12242, Appendix D:
T(B) = sum_s pi(s) sum_{i completes} b_i sum_j c_ij p_ij / sum_s pi(s) tau(s).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from router_backend.native import FloatArray
from router_backend.planner.chain import STATE_LIMIT, SolvedChain, solve_chain
from router_backend.planner.latency import step_table
from router_backend.planner.prediction import Prediction, Totals, summarise
from router_backend.planner.rounding import TickTable, tick_table
from router_backend.planner.system import System, checked_concurrency


def predict(
    system: System,
    thresholds: Sequence[int],
    concurrency: int,
    ticks: TickTable | None = None,
    state_limit: int = STATE_LIMIT,
) -> Prediction:
    """Predicted operation of `concurrency` closed-loop requests under `thresholds`.

    `ticks` replaces the automatic choice of `tick_table`. Errors: `ConfigError` for thresholds that
    can strand all requests, `CapacityError` for a chain beyond `state_limit`.
    """
    if ticks is None:
        ticks = ticks_of(system, concurrency)
    chain = solve_chain(system, thresholds, ticks, state_limit=state_limit)
    return summarise(tuple(thresholds), totals_of(chain, ticks.quantum_ms), system.routing)


def ticks_of(system: System, concurrency: int) -> TickTable:
    """The ticks that fit the latencies of batches 1..concurrency."""
    return tick_table(step_table(system.latencies, checked_concurrency(concurrency)))


def totals_of(chain: SolvedChain, quantum_ms: float) -> Totals:
    """Means per transition of a solved chain."""
    waiting, running, residual = chain.columns()
    holding = chain.holding_ticks()
    completing = np.where(residual == holding, running, 0)
    held_ms = chain.stationary * holding * quantum_ms
    return Totals(
        elapsed_ms=float(held_ms.sum()),
        steps=_expected(chain.stationary, completing > 0),
        completions=_expected(chain.stationary, completing),
        busy_ms=_expected(held_ms, running > 0),
        present_ms=_expected(held_ms, waiting + running),
    )


def _expected(weights: FloatArray, values: npt.NDArray[Any]) -> FloatArray:
    """Sum over states of weight [S] times value [M, S], without `@`: for so small a product, BLAS wakes
    threads that keep the cores of whoever serves meanwhile."""
    return np.asarray(np.einsum("s,ms->m", weights, values))
