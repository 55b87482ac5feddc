"""Barrier modes on cases small enough to work out by hand."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.barrier import BarrierMode, predict_barrier
from router_backend.planner.latency import constant
from router_backend.planner.routing import discard_and_return, mixture
from router_backend.planner.system import System
from router_backend.planner.throughput import predict
from tests.unit.planner.systems import A100_PAIR, CONSTANT


@pytest.mark.parametrize("mode", BarrierMode)
def test_one_request_needs_no_barrier(mode: BarrierMode) -> None:
    assert predict_barrier(A100_PAIR, mode, 1) == pytest.approx(predict(A100_PAIR, (1, 1), 1).throughput)


def test_alternating_models_commit_one_token_per_request_and_cycle() -> None:
    cycle_ms = 6.0 + 27.9 * (1.0 - 0.65**8)

    assert predict_barrier(A100_PAIR, BarrierMode.SLOWEST_FIRST, 8) == pytest.approx(8000.0 / cycle_ms)


def test_running_to_exhaustion_equals_a_threshold_of_all_requests() -> None:
    seen = predict_barrier(A100_PAIR, BarrierMode.EXHAUST, 8)

    assert seen == pytest.approx(predict(A100_PAIR, (1, 8), 8).throughput, rel=1e-7)


def test_step_sync_rounds_last_as_long_as_their_slowest_model() -> None:
    system = System(mixture((0.5, 0.5)), (constant(1.0), constant(1.0)))

    assert predict_barrier(system, BarrierMode.STEP_SYNC, 4) == pytest.approx(4000.0)


def test_three_models_take_turns() -> None:
    system = System(mixture((1 / 3, 1 / 3, 1 / 3)), (constant(1.0), constant(2.0), constant(4.0)))

    seen = {mode: predict_barrier(system, mode, 3) for mode in BarrierMode}

    assert seen[BarrierMode.STEP_SYNC] < 3000.0
    assert len(set(seen.values())) == len(BarrierMode)


def test_a_cap_leaves_requests_behind_at_the_barrier() -> None:
    capped = System(discard_and_return(0.0), CONSTANT, batch_max=(2, 2))

    assert predict_barrier(capped, BarrierMode.STEP_SYNC, 8) == pytest.approx(2 * 1000.0 / 6.0)


def test_a_barrier_without_requests_is_refused() -> None:
    with pytest.raises(ConfigError, match="concurrency: must be at least 1"):
        predict_barrier(A100_PAIR, BarrierMode.STEP_SYNC, 0)
