"""Estimates from observed steps: what they follow, and how fast they forget."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.estimate import Fading, SystemEstimate
from router_backend.planner.latency import StepLatency
from router_backend.planner.system import System
from tests.unit.planner.systems import A100_PAIR, constant_pair

FADING = Fading(half_life_s=2.0, warm_half_life_s=4.0, prior_routes=20.0, prior_steps=5.0)


def route_probability(estimate: SystemEstimate, now: float) -> float:
    return estimate.system(now).routing.probabilities[0][1]


def test_nothing_observed_is_the_prior() -> None:
    estimate = SystemEstimate(A100_PAIR, now=0.0)

    assert estimate.system(5.0) == A100_PAIR
    assert estimate.observed_steps(5.0) == 0.0


def test_observed_routes_outweigh_the_prior_in_proportion() -> None:
    estimate = SystemEstimate(A100_PAIR, 0.0, FADING)

    estimate.observe(0, (30, 50), 6.0, now=0.0)

    assert route_probability(estimate, 0.0) == pytest.approx((20 * 0.35 + 50) / (20 + 80))
    assert estimate.system(0.0).routing.probabilities[1] == (1.0, 0.0)


def test_commits_and_caps_are_never_estimated() -> None:
    estimate = SystemEstimate(System(A100_PAIR.routing, A100_PAIR.latencies, (8, 4)), 0.0)

    estimate.observe(0, (1, 1), 7.0, now=1.0)

    seen = estimate.system(1.0)
    assert (seen.routing.commits, seen.batch_max) == (A100_PAIR.routing.commits, (8, 4))


def test_after_one_half_life_an_observation_counts_half() -> None:
    estimate = SystemEstimate(A100_PAIR, 0.0, FADING)

    estimate.observe(0, (0, 40), 6.0, now=10.0)
    estimate.observe(1, (1, 0), 27.9, now=10.0)

    assert route_probability(estimate, 12.0) == pytest.approx((20 * 0.35 + 20) / (20 + 20))
    assert estimate.observed_steps(14.0) == pytest.approx(0.5)


def test_a_long_silence_returns_to_the_prior() -> None:
    estimate = SystemEstimate(A100_PAIR, 0.0, FADING)

    estimate.observe(0, (0, 400), 60.0, now=0.0)

    assert route_probability(estimate, 100.0) == pytest.approx(0.35, abs=1e-6)
    assert estimate.system(100.0).latencies[0].step_ms(1) == pytest.approx(6.0, abs=1e-6)


def test_time_that_runs_backwards_adds_no_weight() -> None:
    estimate = SystemEstimate(A100_PAIR, 10.0, FADING)

    estimate.observe(0, (0, 40), 6.0, now=9.0)

    assert route_probability(estimate, 8.0) == pytest.approx((20 * 0.35 + 40) / 60)


def test_a_model_that_slows_down_is_slower_at_every_batch_size() -> None:
    prior = System(A100_PAIR.routing, (A100_PAIR.latencies[0], StepLatency(((1, 20.0), (8, 40.0)))))
    estimate = SystemEstimate(prior, 0.0, FADING)

    for _ in range(1000):
        estimate.observe(1, (1, 0), 30.0, now=0.0)

    large = estimate.system(0.0).latencies[1]
    assert large.step_ms(1) == pytest.approx(30.0, rel=0.01)
    assert large.step_ms(8) == pytest.approx(60.0, rel=0.01)


def test_a_batch_size_with_a_latency_of_its_own_gets_its_own_point() -> None:
    estimate = SystemEstimate(A100_PAIR, 0.0, FADING)

    for _ in range(500):
        estimate.observe(0, (1, 0), 6.0, now=0.0)
        estimate.observe(0, (3, 1), 9.0, now=0.0)

    small = estimate.system(0.0).latencies[0]
    assert [batch for batch, _ in small.points] == [1, 4]
    assert small.step_ms(1) == pytest.approx(6.0, rel=0.01)
    assert small.step_ms(4) == pytest.approx(9.0, rel=0.01)


@pytest.mark.parametrize(("destinations", "step_ms"), [((0, 0), 6.0), ((1, 0), 0.0)])
def test_a_step_of_nothing_is_refused(destinations: tuple[int, int], step_ms: float) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        SystemEstimate(A100_PAIR, 0.0).observe(0, destinations, step_ms, now=0.0)


def test_fading_without_a_half_life_is_refused() -> None:
    with pytest.raises(ConfigError, match="every half-life and every prior must be above 0"):
        Fading(half_life_s=0.0)


def test_sums_of_steps_count_like_the_steps_themselves() -> None:
    each, summed = (SystemEstimate(A100_PAIR, 0.0, FADING) for _ in range(2))
    for destinations in ((3, 1), (1, 3)):
        each.observe(0, destinations, 7.0, now=1.0)
    summed.observe_steps(0, (4, 4), ((4, 2, 14.0),), now=1.0)

    seen, expected = summed.system(2.0), each.system(2.0)
    assert seen.routing.probabilities[0] == pytest.approx(expected.routing.probabilities[0])
    times = [[one.step_ms(4) for one in system.latencies] for system in (seen, expected)]
    assert times[0] == pytest.approx(times[1])


@pytest.mark.parametrize("steps", [((0, 1, 5.0),), ((4, 0, 5.0),), ((4, 1, 0.0),)])
def test_sums_that_cannot_be_are_refused(steps: tuple[tuple[int, int, float], ...]) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        SystemEstimate(A100_PAIR, 0.0).observe_steps(0, (4, 0), steps, now=1.0)


def test_a_new_prior_keeps_what_was_observed() -> None:
    estimate = SystemEstimate(A100_PAIR, 0.0, FADING)
    estimate.observe(0, (30, 50), 6.0, now=0.0)
    estimate.rebase(constant_pair(0.1))

    assert route_probability(estimate, 0.0) == pytest.approx((20 * 0.1 + 50) / (20 + 80))
