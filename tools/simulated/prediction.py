"""The throughput model's figure for thresholds that are given."""

from __future__ import annotations

from collections.abc import Sequence

from router_backend.core.errors import CapacityError
from router_backend.planner.monte_carlo import simulate
from router_backend.planner.prediction import Prediction
from router_backend.planner.system import System
from router_backend.planner.throughput import predict

CHAIN_STATES_MAX = 60_000


def prediction(system: System, thresholds: Sequence[int], n: int, seed: int = 0) -> Prediction:
    """For `n` live requests: by the exact chain, or by the count-level simulation where that is too large.

    ConfigError for thresholds that can strand all requests.
    """
    try:
        return predict(system, thresholds, n, state_limit=CHAIN_STATES_MAX)
    except CapacityError:
        return simulate(system, [thresholds], n, seed)[0]
