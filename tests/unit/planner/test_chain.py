"""The event chain against the paper's tick chain, its limits, and what it must not depend on."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.errors import CapacityError, ConfigError
from router_backend.planner.chain import Clock, solve_chain
from router_backend.planner.latency import StepLatency, constant, step_table
from router_backend.planner.prediction import summarise
from router_backend.planner.rounding import exact_ticks, random_ticks
from router_backend.planner.routing import Routing, discard_and_return, discard_and_stay
from router_backend.planner.system import System
from router_backend.planner.throughput import predict, ticks_of, totals_of
from tests.unit.planner.systems import A100_PAIR, CONSTANT, THREE_MODELS, sloped_pair


@pytest.mark.parametrize(
    ("system", "thresholds", "concurrency", "quantum_ms"),
    [
        (A100_PAIR, (1, 5), 8, 0.3),
        (A100_PAIR, (2, 2), 4, 0.3),
        (sloped_pair(0.5), (1, 2), 3, 0.1),
        (THREE_MODELS, (1, 2, 2), 4, 1.5),
    ],
)
def test_tick_chain_and_event_chain_predict_the_same(
    system: System, thresholds: tuple[int, ...], concurrency: int, quantum_ms: float
) -> None:
    ticks = exact_ticks(step_table(system.latencies, concurrency), quantum_ms)

    event, tick = (
        summarise(
            thresholds, totals_of(solve_chain(system, thresholds, ticks, clock), quantum_ms), system.routing
        )
        for clock in (Clock.EVENT, Clock.TICK)
    )

    assert tick.throughput == pytest.approx(event.throughput, rel=1e-7)
    assert tick.turnaround_ms == pytest.approx(event.turnaround_ms, rel=1e-7)


def test_every_state_obeys_the_launch_rule() -> None:
    chain = solve_chain(A100_PAIR, (2, 3), ticks_of(A100_PAIR, 4))
    waiting, running, residual = np.moveaxis(chain.states, 2, 0)
    idle = running == 0

    assert np.all((waiting + running).sum(axis=1) == 4)
    assert np.all(np.where(idle, waiting < [2, 3], running >= [2, 3]))
    assert np.all(np.where(idle, residual == 0, (residual > 0) & (residual <= [20, 93])))
    assert chain.stationary.sum() == pytest.approx(1.0)


def test_one_request_alone_takes_the_sum_of_its_steps() -> None:
    p = 0.35

    seen = predict(A100_PAIR, (1, 1), 1)

    assert seen.throughput == pytest.approx(1000.0 / (6.0 + p * 27.9))
    assert seen.turnaround_ms == pytest.approx((6.0, 27.9))
    assert seen.gap_ms == pytest.approx(6.0 + 27.9)


def test_a_model_that_is_never_used_costs_nothing() -> None:
    seen = predict(System(discard_and_return(0.0), CONSTANT), (1, 3), 4)

    assert seen.throughput == pytest.approx(4 * 1000.0 / 6.0)
    assert seen.mean_batch == (4.0, 0.0)
    assert seen.busy_share == pytest.approx((1.0, 0.0))


def test_requests_that_stay_for_good_run_on_the_large_model_only() -> None:
    seen = predict(System(discard_and_stay(0.5, 0.0), CONSTANT), (1, 1), 4)

    assert seen.busy_share[1] == pytest.approx(1.0, abs=1e-6)
    assert seen.throughput == pytest.approx(1000.0 * seen.mean_batch[1] / 27.9, rel=1e-6)


def test_kept_or_discarded_tokens_change_the_throughput_but_not_the_order_of_thresholds() -> None:
    discarded = discard_and_return(0.35)
    kept = Routing(discarded.probabilities, ((1.0, 1.0), (1.0, 1.0)))
    candidates = [(1, t) for t in range(1, 9)]

    def ratios(routing: Routing) -> list[float]:
        seen = [predict(System(routing, CONSTANT), one, 8).throughput for one in candidates]
        return [value / seen[0] for value in seen]

    # One pass commits one token when the hand-off is discarded, 1 + p when it is kept.
    assert ratios(kept) == pytest.approx(ratios(discarded), rel=1e-8)


def test_swapping_the_names_of_two_peers_swaps_their_figures() -> None:
    rows = ((0.2, 0.5, 0.3), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    swapped = ((0.2, 0.3, 0.5), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0))
    ones = ((1.0,) * 3,) * 3
    a, b, c = constant(2.0), constant(3.0), constant(5.0)

    one = predict(System(Routing(rows, ones), (a, b, c)), (1, 2, 1), 3)
    other = predict(System(Routing(swapped, ones), (a, c, b)), (1, 1, 2), 3)

    assert other.throughput == pytest.approx(one.throughput)
    assert other.mean_batch == pytest.approx((one.mean_batch[0], one.mean_batch[2], one.mean_batch[1]))


def test_a_cap_bounds_every_batch_and_the_rest_waits() -> None:
    capped = System(A100_PAIR.routing, CONSTANT, batch_max=(4, 2))

    chain = solve_chain(capped, (1, 2), ticks_of(capped, 8))

    assert chain.states[:, :, 1].max(axis=0).tolist() == [4, 2]
    assert predict(capped, (1, 2), 8).throughput < predict(A100_PAIR, (1, 2), 8).throughput


def test_step_time_linear_in_the_batch_leaves_nothing_to_gain_from_waiting() -> None:
    linear = (StepLatency(((1, 6.0), (2, 12.0))), StepLatency(((1, 28.0), (2, 56.0))))
    system = System(discard_and_return(0.35), linear)

    seen = [predict(system, (1, threshold), 4).throughput for threshold in (1, 2, 3, 4)]

    assert seen == sorted(seen, reverse=True)


def test_random_rounding_stays_within_one_point_two_percent_of_the_exact_chain() -> None:
    exact = [predict(A100_PAIR, (1, t), 8).throughput for t in range(1, 9)]
    ticks = random_ticks(step_table(CONSTANT, 8), 2.0)
    rounded = [predict(A100_PAIR, (1, t), 8, ticks).throughput for t in range(1, 9)]

    assert rounded == pytest.approx(exact, rel=0.012)
    assert rounded.index(max(rounded)) == exact.index(max(exact))


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        ((1,), "thresholds: 2 models expected, got 1"),
        ((0, 1), r"thresholds\[0\]: must lie between 1 and 4, got 0"),
        ((1, 5), r"thresholds\[1\]: must lie between 1 and 4, got 5"),
        ((3, 3), r"can strand all 4 requests"),
    ],
)
def test_thresholds_that_could_wait_for_ever_are_refused(thresholds: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict(A100_PAIR, thresholds, 4)


def test_a_threshold_above_the_cap_of_its_model_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"thresholds\[1\]: must lie between 1 and 2, got 3"):
        predict(System(A100_PAIR.routing, CONSTANT, batch_max=(8, 2)), (1, 3), 8)


def test_a_chain_beyond_the_limit_is_a_capacity_error() -> None:
    with pytest.raises(CapacityError, match=r"thresholds \[1, 1\]: the chain has more than 3000 states"):
        predict(A100_PAIR, (1, 1), 8, state_limit=3_000)


def test_no_requests_at_all_cannot_be_predicted() -> None:
    with pytest.raises(ConfigError, match="concurrency: must be at least 1, got 0"):
        predict(A100_PAIR, (1, 1), 0)


@pytest.mark.parametrize(("route_probability", "thresholds"), [(0.05, (1, 10)), (0.7, (1, 1))])
def test_almost_periodic_and_slowly_mixing_chains_are_solved(
    route_probability: float, thresholds: tuple[int, ...]
) -> None:
    """Plain sweeps took 10,000 and 600 here. Little's law: all requests are somewhere."""
    seen = predict(sloped_pair(route_probability), thresholds, 16)
    small_per_ms = seen.throughput / 1000.0
    large_per_ms = small_per_ms * route_probability

    present = small_per_ms * seen.turnaround_ms[0] + large_per_ms * seen.turnaround_ms[1]

    assert present == pytest.approx(16.0, rel=1e-6)
