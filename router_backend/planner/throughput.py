"""Throughput of one threshold vector, from the exact chain.

Source: arXiv:2610.12242, Appendix D:
T(B) = sum_s pi(s) sum_{i completes} b_i sum_j c_ij p_ij / sum_s pi(s) tau(s).
"""

from __future__ import annotations

from collections.abc import Sequence

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
    waiting, running = chain.states[:, :, 0], chain.states[:, :, 1]
    completing = chain.completing()
    held_ms = chain.stationary * chain.holding_ticks() * quantum_ms
    return Totals(
        elapsed_ms=float(held_ms.sum()),
        steps=chain.stationary @ (completing > 0),
        completions=chain.stationary @ completing,
        busy_ms=held_ms @ (running > 0),
        present_ms=held_ms @ (waiting + running),
    )
