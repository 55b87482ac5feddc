"""The simulation against the exact chain, and its repeatability."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import constant
from router_backend.planner.monte_carlo import FINALISTS, Effort, simulate, simulate_best
from router_backend.planner.routing import discard_and_return
from router_backend.planner.system import System
from router_backend.planner.throughput import predict
from tests.unit.planner.systems import A100_PAIR, CONSTANT, THREE_MODELS, sloped_pair

QUICK = Effort(turns=200, warmup_turns=20, replicas=4)


def test_simulation_stays_within_half_a_percent_of_the_chain() -> None:
    candidates = [(1, 1), (1, 5), (2, 6), (1, 8)]

    seen = simulate(A100_PAIR, candidates, 8, seed=1)

    exact = [predict(A100_PAIR, one, 8) for one in candidates]
    assert [one.thresholds for one in seen] == candidates
    assert [one.throughput for one in seen] == pytest.approx([one.throughput for one in exact], rel=0.005)
    for simulated, predicted in zip(seen, exact, strict=True):
        assert simulated.mean_batch == pytest.approx(predicted.mean_batch, rel=0.02)
        assert simulated.turnaround_ms == pytest.approx(predicted.turnaround_ms, rel=0.02)
        assert simulated.busy_share == pytest.approx(predicted.busy_share, rel=0.02)
        assert simulated.gap_ms == pytest.approx(predicted.gap_ms, rel=0.02)


def test_simulation_agrees_for_three_models_with_batches_that_cost_more() -> None:
    (three,) = simulate(THREE_MODELS, [(1, 2, 2)], 4, seed=2)
    (sloped,) = simulate(sloped_pair(0.5), [(1, 3)], 5, seed=3)

    assert three.throughput == pytest.approx(predict(THREE_MODELS, (1, 2, 2), 4).throughput, rel=0.01)
    assert sloped.throughput == pytest.approx(predict(sloped_pair(0.5), (1, 3), 5).throughput, rel=0.01)


def test_caps_hold_in_the_simulation_too() -> None:
    capped = System(discard_and_return(0.0), (constant(6.0), constant(27.9)), batch_max=(2, 2))

    (seen,) = simulate(capped, [(1, 1)], 8, seed=0, effort=QUICK)

    assert seen.mean_batch == (2.0, 0.0)
    assert seen.throughput == pytest.approx(2 * 1000.0 / 6.0)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    first, again, other = (simulate(A100_PAIR, [(1, 3)], 4, seed, QUICK) for seed in (7, 7, 8))

    assert first == again
    assert first != other


def test_all_candidates_get_figures_and_the_best_ones_come_from_the_full_effort() -> None:
    candidates = [(1, 1)] + [(1 + k % 3, 1 + k % 5) for k in range(FINALISTS + 10)]

    seen = simulate_best(A100_PAIR, candidates, 8, 0, QUICK)
    short = simulate(A100_PAIR, candidates, 8, 0, QUICK.short())

    assert [one.thresholds for one in seen] == candidates
    unchanged = [i for i, one in enumerate(seen) if one == short[i]]
    assert len(unchanged) == len(candidates) - FINALISTS
    assert 0 not in unchanged
    finalists = set(range(1, len(candidates))) - set(unchanged)
    assert max(short[i].throughput for i in unchanged) <= min(short[i].throughput for i in finalists)


def test_effort_below_one_turn_is_refused() -> None:
    with pytest.raises(ConfigError, match="turns and replicas must be at least 1"):
        Effort(turns=0)


def test_the_simulation_refuses_thresholds_that_could_wait_for_ever() -> None:
    with pytest.raises(ConfigError, match="can strand all 2 requests"):
        simulate(System(A100_PAIR.routing, CONSTANT), [(1, 1), (2, 2)], 2, seed=0)
