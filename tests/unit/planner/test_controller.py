"""The controller: down at once, up late, ones whenever the plan cannot be trusted."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.controller import (
    Cause,
    Controller,
    ControllerSettings,
    Decision,
    Situation,
)
from router_backend.planner.prediction import Prediction
from router_backend.planner.threshold_table import ThresholdTable, plan_table
from router_backend.planner.thresholds import Method, Plan, Reason
from router_backend.planner.watchdog import WatchdogSettings
from tests.unit.planner.systems import A100_PAIR, THREE_MODELS

BUSY = Situation(live=8, is_draining=False, observed_steps=100.0)


def table(chosen: tuple[int, int], **throughputs: float) -> ThresholdTable:
    """A solution for 8 requests; keywords such as t14=110.0 give the throughput of (1, 4)."""
    rows = {(int(name[1]), int(name[2])): value for name, value in throughputs.items()}
    nothing = (0.0, 0.0)
    predictions = [
        Prediction(vector, rows.get(vector, 100.0), nothing, nothing, nothing, 0.0)
        for vector in {(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 4), chosen, *rows}
    ]
    ranked = sorted(predictions, key=lambda one: -one.throughput)
    best = next(one for one in ranked if one.thresholds == chosen)
    return ThresholdTable((Plan(8, Method.EXACT_CHAIN, Reason.BEST, best, tuple(ranked)),))


def thresholds(controller: Controller) -> tuple[int, ...]:
    return controller.decide(BUSY, now=1.0).thresholds


def test_the_offline_table_is_in_force_from_the_start_for_every_live_count() -> None:
    controller = Controller(plan_table(A100_PAIR, (2, 4, 8)), now=0.0)

    seen = [controller.planned(live) for live in (1, 2, 3, 4, 8, 64)]

    assert seen == [(1, 1), (1, 2), (1, 2), (1, 3), (1, 5), (1, 5)]
    assert controller.decide(BUSY, now=1.0) == Decision((1, 5), Cause.PLAN)


@pytest.mark.parametrize(
    ("situation", "cause"),
    [
        (Situation(8, True, 100.0), Cause.DRAINING),
        (Situation(1, False, 100.0), Cause.ALONE),
        (Situation(0, False, 100.0), Cause.ALONE),
        (Situation(8, False, 9.0), Cause.COLD),
    ],
)
def test_nobody_waits_while_draining_alone_or_cold(situation: Situation, cause: Cause) -> None:
    controller = Controller(table((1, 5)), now=0.0)

    assert controller.decide(situation, now=1.0) == Decision((1, 1), cause)


def test_a_lower_threshold_applies_at_once() -> None:
    controller = Controller(table((1, 5)), now=0.0)

    assert controller.accept(table((1, 2)), now=3.0) == (8,)
    assert thresholds(controller) == (1, 2)


def test_a_higher_threshold_waits_for_a_second_solution_that_agrees() -> None:
    controller = Controller(table((1, 2)), now=0.0)

    assert controller.accept(table((1, 4), t14=110.0), now=3.0) == ()
    assert thresholds(controller) == (1, 2)
    assert controller.accept(table((1, 4), t14=110.0), now=6.0) == (8,)
    assert thresholds(controller) == (1, 4)


def test_two_solutions_agree_on_the_lower_of_both() -> None:
    controller = Controller(table((1, 2)), now=0.0)

    controller.accept(table((1, 5), t15=110.0), now=3.0)
    controller.accept(table((1, 4), t14=110.0), now=6.0)
    first = thresholds(controller)
    controller.accept(table((1, 5), t14=100.0, t15=110.0), now=9.0)

    assert (first, thresholds(controller)) == ((1, 4), (1, 4))


def test_a_solution_that_disagrees_in_between_starts_the_count_again() -> None:
    controller = Controller(table((1, 2)), now=0.0)

    for chosen in ((1, 4), (1, 2), (1, 4)):
        controller.accept(table(chosen, t14=110.0), now=3.0)

    assert thresholds(controller) == (1, 2)


def test_a_predicted_gain_of_two_percent_or_less_raises_nothing() -> None:
    controller = Controller(table((1, 2)), now=0.0)

    for _ in range(3):
        controller.accept(table((1, 4), t14=101.9), now=3.0)

    assert thresholds(controller) == (1, 2)


def test_one_threshold_falls_at_once_while_the_other_waits_to_rise() -> None:
    controller = Controller(table((1, 5)), now=0.0)

    controller.accept(table((2, 4), t24=110.0), now=3.0)
    first = thresholds(controller)
    controller.accept(table((2, 4), t24=110.0), now=6.0)

    assert (first, thresholds(controller)) == ((1, 4), (2, 4))


def test_a_gain_over_thresholds_nobody_has_looked_at_is_not_believed() -> None:
    controller = Controller(table((1, 7)), now=0.0)

    for _ in range(2):
        controller.accept(table((2, 6), t26=110.0), now=3.0)

    assert thresholds(controller) == (1, 6)


def test_a_new_live_count_starts_from_ones() -> None:
    controller = Controller(plan_table(A100_PAIR, (2,)), now=0.0)

    changed = [controller.accept(plan_table(A100_PAIR, (8,)), now) for now in (3.0, 6.0)]

    assert changed == [(), (8,)]
    assert [controller.planned(live) for live in (4, 8)] == [(1, 2), (1, 5)]


def test_the_present_live_count_is_solved_often_and_all_of_them_seldom() -> None:
    settings = ControllerSettings(solve_near_s=1.0, solve_all_s=3.0)
    controller = Controller(plan_table(A100_PAIR, (2, 4, 8)), now=10.0, settings=settings)

    assert [controller.counts_due(6, now) for now in (10.9, 11.0, 13.0)] == [(), (4,), (2, 4, 8)]
    assert [controller.counts_due(live, 11.0) for live in (0, 1, 2, 64)] == [(), (), (2,), (8,)]
    controller.accept(plan_table(A100_PAIR, (4,)), now=12.5)
    assert [controller.counts_due(6, now) for now in (13.4, 13.5)] == [(), (2, 4, 8)]
    controller.accept(plan_table(A100_PAIR, (2, 4, 8)), now=13.5)
    assert [controller.counts_due(6, now) for now in (14.4, 14.5)] == [(), (4,)]


def test_a_plan_that_loses_in_practice_is_replaced_by_ones() -> None:
    watchdog = WatchdogSettings(interval_s=10.0, window_s=1.0)
    controller = Controller(table((1, 5)), 0.0, ControllerSettings(watchdog=watchdog))

    for step in range(1, 210):
        now = step * 0.05
        waits = controller.decide(BUSY, now - 0.025).thresholds != (1, 1)
        controller.record(10 if waits else 20, BUSY, now)

    assert controller.decide(BUSY, now=11.0) == Decision((1, 1), Cause.WATCHDOG)


def test_tokens_of_times_without_a_plan_are_no_evidence() -> None:
    controller = Controller(table((1, 5)), now=0.0)
    draining = Situation(live=8, is_draining=True, observed_steps=100.0)

    for second in range(100):
        controller.record(0 if second % 2 else 1000, draining, float(second))

    assert controller.decide(BUSY, now=100.0) == Decision((1, 5), Cause.PLAN)


def test_a_table_for_other_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="table: 2 models expected, got 3"):
        Controller(table((1, 2)), now=0.0).accept(plan_table(THREE_MODELS, (2,)), now=1.0)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="0 < solve_near_s <= solve_all_s"):
        ControllerSettings(solve_near_s=0.0)
