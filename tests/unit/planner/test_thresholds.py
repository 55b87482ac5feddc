"""The feasible set, the choice within it, and the explanation of the choice."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.monte_carlo import Effort
from router_backend.planner.prediction import Prediction
from router_backend.planner.system import System
from router_backend.planner.threshold_table import ThresholdTable, plan_table
from router_backend.planner.thresholds import (
    Method,
    Reason,
    Search,
    choose,
    explain,
    feasible_thresholds,
    plan,
)
from router_backend.planner.throughput import predict
from tests.unit.planner.systems import A100_PAIR, CONSTANT, THREE_MODELS, sloped_pair


def predicted(thresholds: tuple[int, ...], throughput: float, gap_ms: float = 10.0) -> Prediction:
    nothing = (0.0,) * len(thresholds)
    return Prediction(thresholds, throughput, nothing, nothing, nothing, gap_ms)


def test_the_feasible_set_leaves_enough_requests_for_at_least_one_model() -> None:
    assert list(feasible_thresholds(3, (3, 3))) == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1)]


def test_caps_bound_the_feasible_set() -> None:
    assert list(feasible_thresholds(3, (1, 2))) == [(1, 1), (1, 2)]


def test_beyond_sixteen_requests_the_set_is_thinned_but_keeps_all_ones() -> None:
    seen = list(feasible_thresholds(64, (64, 64)))

    assert seen[0] == (1, 1)
    assert {large for _, large in seen} == {1, *range(6, 65, 6)}
    assert len(seen) < 100


def test_a_plan_ranks_every_candidate_and_names_the_best() -> None:
    seen = plan(A100_PAIR, 4)

    assert seen.method is Method.EXACT_CHAIN
    assert seen.best.thresholds == seen.chosen.thresholds == (1, 3)
    assert seen.best.throughput == pytest.approx(207.954041)
    assert [one.throughput for one in seen.predictions] == sorted(
        (predict(A100_PAIR, one, 4).throughput for one in feasible_thresholds(4, (4, 4))), reverse=True
    )
    assert seen.prediction((4, 4)) is None


def test_the_explanation_gives_gain_and_the_loss_of_one_more() -> None:
    seen = explain(plan(A100_PAIR, 4))

    assert (seen.thresholds, seen.reason, seen.candidate_count) == ((1, 3), Reason.BEST, 10)
    assert seen.gain == pytest.approx(207.954041 / 187.189651 - 1.0)
    assert seen.given_up == 0.0
    assert seen.overshoot_loss == pytest.approx(1.0 - 190.742172 / 207.954041)


def test_one_request_alone_never_waits_and_cannot_overshoot() -> None:
    seen = plan(A100_PAIR, 1)

    assert (seen.reason, seen.chosen.thresholds) == (Reason.ALONE, (1, 1))
    assert explain(seen).overshoot_loss is None


def test_the_smallest_threshold_within_one_percent_of_the_best_is_chosen() -> None:
    ranked = [
        predicted((1, 6), 100.0),
        predicted((1, 5), 99.5),
        predicted((1, 4), 99.0),
        predicted((1, 3), 98.9),
    ]

    assert choose(ranked, Search()) == (Reason.SMALLER_NEARLY_AS_GOOD, ranked[2])
    assert choose(ranked, Search(tolerance=0.0)) == (Reason.BEST, ranked[0])


def test_of_equally_small_vectors_the_faster_is_chosen() -> None:
    ranked = [predicted((2, 9), 100.0), predicted((2, 8), 99.8), predicted((1, 9), 99.6)]

    assert choose(ranked, Search())[1] is ranked[1]


def test_a_gap_target_rules_out_faster_thresholds() -> None:
    ranked = [predicted((1, 6), 100.0, 60.0), predicted((1, 3), 90.0, 40.0), predicted((1, 1), 80.0, 30.0)]

    assert choose(ranked, Search(gap_ms_max=50.0)) == (Reason.GAP_TARGET, ranked[1])
    assert choose(ranked, Search(gap_ms_max=20.0)) == (Reason.NO_CANDIDATE_MEETS_GAP_TARGET, ranked[2])


def test_chains_too_large_are_rounded_and_then_simulated() -> None:
    rounded = plan(A100_PAIR, 8, Search(exact_state_limit=1_000))
    simulated = plan(
        A100_PAIR, 8, Search(exact_state_limit=1_000, rounded_state_limit=100, effort=Effort(1500, 100, 16))
    )

    assert (rounded.method, rounded.best.thresholds) == (Method.ROUNDED_CHAIN, (1, 5))
    assert simulated.method is Method.SIMULATION
    assert simulated.best.thresholds in {(1, 5), (1, 6)}
    assert simulated.best.throughput == pytest.approx(399.05, rel=0.01)


def test_measured_latencies_go_straight_to_the_rounded_chain() -> None:
    measured = System(A100_PAIR.routing, tuple(type(one)(((1, one.step_ms(1) + 1e-5),)) for one in CONSTANT))

    seen = plan(measured, 4)

    assert (seen.method, seen.best.thresholds) == (Method.ROUNDED_CHAIN, (1, 3))


def test_three_models_are_planned_over_all_vectors() -> None:
    seen = plan(THREE_MODELS, 3)

    assert len(seen.predictions) == 10
    assert seen.best.throughput >= seen.eager.throughput


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"tolerance": 1.0}, "tolerance: must be at least 0"),
        ({"gap_ms_max": 0.0}, "gap_ms_max: must be above 0"),
    ],
)
def test_search_settings_that_make_no_sense_are_refused(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Search(**setting)  # type: ignore[arg-type]


def test_the_table_answers_every_live_count_with_the_plan_at_or_below_it() -> None:
    table = plan_table(A100_PAIR, (2, 4, 8))

    assert [table.thresholds_at(live) for live in (0, 1, 2, 3, 4, 7, 8, 64)] == [
        (1, 1),
        (1, 1),
        (1, 2),
        (1, 2),
        (1, 3),
        (1, 3),
        (1, 5),
        (1, 5),
    ]
    assert table.plan_at(1) is None


@pytest.mark.parametrize("counts", [(), (4, 2), (2, 2)])
def test_a_table_out_of_order_is_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="live counts: at least one, in rising order"):
        ThresholdTable(tuple(plan(A100_PAIR, live) for live in counts))


def test_within_one_percent_of_the_best_the_table_never_exceeds_the_golden_thresholds() -> None:
    golden = (1, 2, 2, 3, 3, 4, 5, 5)

    table = plan_table(sloped_pair(0.35), range(1, 9))

    assert all(plan.chosen.thresholds[1] <= best for plan, best in zip(table.plans, golden, strict=True))
    assert all(explain(plan).given_up <= 0.01 for plan in table.plans)
