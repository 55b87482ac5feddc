"""The published predictions (arXiv:2610.12242, Figure 10) and those of an independent solver."""

from __future__ import annotations

import time

import pytest

from router_backend.planner.barrier import BarrierMode, predict_barrier
from router_backend.planner.chain import Clock, solve_chain
from router_backend.planner.latency import step_table
from router_backend.planner.rounding import exact_ticks
from router_backend.planner.system import System
from router_backend.planner.threshold_table import plan_table
from router_backend.planner.throughput import predict, ticks_of
from tests.unit.planner.systems import A100_PAIR, constant_pair, sloped_pair

FIGURE_10 = {
    (2, 1): 99.0,
    (2, 2): 110.3,
    (3, 1): 142.3,
    (3, 2): 158.1,
    (3, 3): 151.9,
    (4, 1): 187.2,
    (4, 2): 195.4,
    (4, 3): 207.9,
    (4, 4): 190.7,
}
BY_LARGE_THRESHOLD = {
    1: (63.4317,),
    2: (98.956913, 110.322694),
    4: (187.189651, 195.439133, 207.954041, 190.742172),
    8: (369.206563, 370.581456, 374.416649, 386.798573, 399.049502, 397.748252, 381.131772, 332.445060),
}
BARRIERS = {
    BarrierMode.STEP_SYNC: 228.668338,
    BarrierMode.SLOWEST_FIRST: 242.343601,
    BarrierMode.EXHAUST: 332.445060,
    BarrierMode.LONGEST_FIRST: 367.704011,
}
BEST_BY_LIVE_COUNT = {
    0.05: (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2),
    0.2: (1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5),
    0.35: (1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 6, 7, 7, 7, 8, 8),
    0.5: (1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 9, 10, 11, 11),
    0.7: (1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, 12, 13),
}


def throughput(system: System, concurrency: int, large_threshold: int) -> float:
    return predict(system, (1, large_threshold), concurrency).throughput


def best_large_threshold(system: System, concurrency: int) -> int:
    """By the exact chain, in ticks of 0.1 ms."""
    ticks = exact_ticks(step_table(system.latencies, concurrency), 0.1)
    candidates = range(1, concurrency + 1)
    return max(candidates, key=lambda t: predict(system, (1, t), concurrency, ticks).throughput)


@pytest.mark.parametrize(("setting", "published"), FIGURE_10.items())
def test_every_prediction_of_figure_10_is_met_within_a_tenth_of_a_token_per_second(
    setting: tuple[int, int], published: float
) -> None:
    assert throughput(A100_PAIR, *setting) == pytest.approx(published, abs=0.1)


@pytest.mark.parametrize(("concurrency", "golden"), BY_LARGE_THRESHOLD.items())
def test_throughput_by_large_threshold_equals_the_independent_solver(
    concurrency: int, golden: tuple[float, ...]
) -> None:
    seen = [throughput(A100_PAIR, concurrency, threshold) for threshold in range(1, concurrency + 1)]

    assert seen == pytest.approx(golden, rel=1e-6)


def test_sixteen_requests_and_threshold_ten_equal_the_independent_solver() -> None:
    assert throughput(A100_PAIR, 16, 10) == pytest.approx(777.976043, rel=1e-8)


@pytest.mark.parametrize(("mode", "golden"), BARRIERS.items())
def test_barrier_modes_equal_the_independent_solver(mode: BarrierMode, golden: float) -> None:
    assert predict_barrier(A100_PAIR, mode, 8) == pytest.approx(golden, rel=1e-8)


@pytest.mark.parametrize(("concurrency", "states"), [(4, 715), (8, 3_453), (16, 14_257), (32, 57_177)])
def test_event_chain_has_the_published_number_of_states(concurrency: int, states: int) -> None:
    assert solve_chain(A100_PAIR, (1, 1), ticks_of(A100_PAIR, concurrency)).state_count == states


def test_event_chain_needs_51_states_where_the_tick_chain_needs_952() -> None:
    ticks = ticks_of(A100_PAIR, 8)

    sizes = [solve_chain(A100_PAIR, (1, 5), ticks, clock).state_count for clock in (Clock.EVENT, Clock.TICK)]

    assert sizes == [51, 952]


@pytest.mark.parametrize(
    ("concurrency", "threshold", "gain"),
    [(2, 2, 0.115), (4, 3, 0.111), (8, 5, 0.081), (16, 10, 0.060), (32, 20, 0.044)],
)
def test_gain_over_eager_at_the_best_threshold_with_constant_latency(
    concurrency: int, threshold: int, gain: float
) -> None:
    around = range(threshold - 1, min(threshold + 1, concurrency) + 1)
    seen = {candidate: throughput(A100_PAIR, concurrency, candidate) for candidate in around}

    assert max(seen, key=seen.__getitem__) == threshold
    assert seen[threshold] / throughput(A100_PAIR, concurrency, 1) - 1.0 == pytest.approx(gain, abs=0.001)


@pytest.mark.parametrize(("concurrency", "threshold", "gain"), [(2, 2, 0.104), (4, 3, 0.093), (8, 5, 0.062)])
def test_gain_over_eager_at_the_best_threshold_with_a_latency_that_grows_with_the_batch(
    concurrency: int, threshold: int, gain: float
) -> None:
    system = sloped_pair(0.35)

    assert best_large_threshold(system, concurrency) == threshold
    seen = throughput(system, concurrency, threshold) / throughput(system, concurrency, 1) - 1.0
    assert seen == pytest.approx(gain, abs=0.001)


@pytest.mark.parametrize(("concurrency", "gain"), [(2, 0.31), (4, 0.24), (8, 0.21), (16, 0.19), (32, 0.17)])
def test_gain_grows_when_the_large_model_writes_a_third_of_the_tokens(concurrency: int, gain: float) -> None:
    system = constant_pair(0.538)
    near_best = range(max(1, concurrency // 2), max(2, 4 * concurrency // 5) + 1)

    best = max(throughput(system, concurrency, threshold) for threshold in near_best)

    assert best / throughput(system, concurrency, 1) - 1.0 == pytest.approx(gain, abs=0.006)


@pytest.mark.parametrize(("route_probability", "golden"), BEST_BY_LIVE_COUNT.items())
def test_best_threshold_by_live_count_equals_the_table(
    route_probability: float, golden: tuple[int, ...]
) -> None:
    system = sloped_pair(route_probability)
    counts = (2, 3, 5, 8, 11, 12)

    assert [best_large_threshold(system, n) for n in counts] == [golden[n - 1] for n in counts]


def test_fixed_thresholds_lose_what_the_table_of_expectations_says() -> None:
    def change(threshold: int, *route_probabilities: float) -> float:
        pairs = [sloped_pair(p) for p in route_probabilities]
        return sum(throughput(s, 8, threshold) for s in pairs) / sum(throughput(s, 8, 1) for s in pairs) - 1.0

    assert change(5, 0.1, 0.5) == pytest.approx(-0.043, abs=0.005)
    assert change(8, 0.1, 0.5) == pytest.approx(-0.31, abs=0.01)
    assert change(8, 0.05) == pytest.approx(-0.51, abs=0.02)


def test_full_table_up_to_sixteen_requests_takes_under_a_second() -> None:
    begun_s = time.process_time()

    table = plan_table(A100_PAIR, range(1, 17))

    assert time.process_time() - begun_s < 1.0
    assert [plan.chosen.thresholds for plan in table.plans[:8]] == [
        (1, 1),
        (1, 2),
        (1, 2),
        (1, 3),
        (1, 3),
        (1, 4),
        (1, 4),
        (1, 5),
    ]
