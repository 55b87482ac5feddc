"""The closed loop of a what-if run: real schedulers that reach what the Markov model predicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from router_backend.scheduler.batch import LaunchReason
from router_backend.scheduler.rounds import Mode
from router_backend.simulation.closed_loop import ClosedLoop, Load, Pair, Scheduling, Tally

A100 = Pair(((0.006,), (0.0279,)), route_p=0.35)
LOAD = Load(clients=4, answer_tokens=64, tokens=6_000, warmup_tokens=400)


def run(load: Load = LOAD, pair: Pair = A100, **scheduling: object) -> Tally:
    return ClosedLoop(pair, load, Scheduling(**scheduling)).run()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clients", "thresholds", "golden"),
    [(1, (1, 1), 63.4317), (2, (1, 2), 110.322694), (4, (1, 3), 207.954041), (8, (1, 5), 399.049502)],
)
def test_it_reaches_the_golden_numbers_of_delayed_batching(clients, thresholds, golden):
    """Shared planner notes, section 2."""
    tally = run(replace(LOAD, clients=clients), thresholds=thresholds)

    assert tally.throughput == pytest.approx(golden, rel=0.02)
    assert {*tally.launches[0], *tally.launches[1]} == {LaunchReason.THRESHOLD}


@pytest.mark.parametrize(
    ("mode", "golden"),
    [(Mode.EAGER_ASYNC, 369.206563), (Mode.STEP_SYNC, 228.668338), (Mode.MODEL_SYNC, 242.343601)],
)
def test_it_reaches_those_of_the_other_modes(mode, golden):
    tally = run(replace(LOAD, clients=8), mode=mode)

    assert tally.throughput == pytest.approx(golden, rel=0.02)


def test_a_pair_that_never_routes_is_the_small_model_alone():
    tally = run(pair=replace(A100, route_p=0.0))

    assert tally.throughput == pytest.approx(4 / 0.006, rel=1e-3)
    assert tally.mean_batch == (4.0, 0.0)
    assert (min(tally.gaps_s), max(tally.gaps_s)) == pytest.approx((0.006, 0.006))


def test_a_large_model_that_keeps_control_writes_more():
    stays = run(pair=replace(A100, return_p=0.2))

    assert stays.throughput < run().throughput
    assert stays.rows[1] / stays.steps[1] > 1


def test_the_time_of_a_hand_off_costs_throughput():
    assert run(pair=replace(A100, handoff_s=0.002), thresholds=(1, 3)).throughput < 203


def test_a_step_time_may_grow_with_the_batch():
    sloped = replace(A100, step_s=((0.006, 0.012, 0.018, 0.024), (0.0279,)), route_p=0.0)

    assert run(pair=sloped).throughput == pytest.approx(4 / 0.024, rel=1e-3)


def test_a_threshold_beyond_the_live_requests_is_released_and_says_so():
    tally = run(thresholds=(1, 9))

    assert set(tally.launches[1]) == {LaunchReason.IDLE_RELEASE}
    assert tally.throughput == pytest.approx(190.742172, rel=0.02)


def test_a_deadline_starts_a_batch_that_does_not_fill():
    tally = run(thresholds=(1, 4), deadline_s=0.040)

    assert tally.launches[1][LaunchReason.DEADLINE] > 0


def test_the_same_seed_gives_the_same_figures_and_another_seed_others():
    short = replace(LOAD, tokens=1000)
    first, again, other = run(short), run(short), run(replace(short, seed=1))

    assert first == again
    assert first != other


def test_only_the_last_batches_are_kept_for_a_picture():
    loop = ClosedLoop(A100, LOAD, Scheduling())
    tally = loop.run()

    assert len(loop.launches) == loop.launches.maxlen
    last = loop.launches[-1]
    assert last.at <= tally.ended_at and last.step_s in (0.006, 0.0279)
    assert 1 <= len(last.request_ids) <= 4
