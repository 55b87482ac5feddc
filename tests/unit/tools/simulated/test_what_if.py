"""The question behind a what-if run, and what is predicted for it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import constant, sloped
from router_backend.scheduler.rounds import Mode
from router_backend.simulation.closed_loop import Load
from tools.simulated.what_if import Question, answer, chosen_thresholds, fast_answer, predicted_throughput

pytestmark = pytest.mark.filterwarnings("ignore:native chain solver is not built:RuntimeWarning")

QUESTION = Question(
    latencies=(constant(6.0), constant(27.9)),
    route_p=0.35,
    return_p=1.0,
    load=Load(4, tokens=1_000, warmup_tokens=50),
    thresholds=None,
    mode=Mode.DELAYED,
    handoff_ms=0.0,
    deadline_ms=inf,
)


def test_the_pair_that_runs_has_the_step_times_of_the_one_that_is_planned():
    pair = replace(QUESTION, latencies=(sloped(6.0, 2.0), constant(30.0)), handoff_ms=0.5).pair()

    assert pair.step_s[0] == pytest.approx((0.006, 0.008, 0.010, 0.012))
    assert pair.step_s[1] == pytest.approx((0.030,) * 4)
    assert (pair.route_p, pair.return_p, pair.handoff_s) == (0.35, 1.0, 0.0005)


def test_thresholds_are_the_planners_unless_they_are_given_or_the_mode_has_none():
    assert chosen_thresholds(QUESTION) == (1, 3)
    assert chosen_thresholds(replace(QUESTION, thresholds=(2, 2))) == (2, 2)
    assert chosen_thresholds(replace(QUESTION, thresholds=(2, 2), mode=Mode.EAGER_ASYNC)) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mode": Mode.EAGER_ASYNC}, 187.189651),
        ({"thresholds": (1, 3)}, 207.954041),
        ({"thresholds": (2, 4)}, None),
    ],
)
def test_predictions_are_the_golden_ones(changes, expected):
    question = replace(QUESTION, **changes)
    found = predicted_throughput(question, chosen_thresholds(question))

    assert found == (expected if expected is None else pytest.approx(expected, rel=1e-6))


def test_a_chain_that_is_too_large_is_predicted_by_simulation(monkeypatch):
    monkeypatch.setattr("tools.simulated.prediction.CHAIN_STATES_MAX", 10)

    assert predicted_throughput(QUESTION, (1, 3)) == pytest.approx(207.95, rel=0.01)


def test_an_answer_counts_what_it_ran_and_how_long_that_took():
    ticks = iter([100.0, 102.0])
    found, picture = answer(QUESTION, lambda: next(ticks))

    assert 1_050 <= found.tokens < 1_050 + 2 * 4
    assert found.wall_s == 2.0
    assert found.tokens_per_wall_s == found.tokens / 2.0
    assert picture.models == ("small", "large")
    assert picture.launches[0].at == 0.0
    assert picture.title.startswith("delayed, thresholds 1,3, 4 requests")


def test_a_large_model_that_keeps_control_is_predicted_and_simulated_alike():
    stays = replace(QUESTION, return_p=0.4, load=Load(4, tokens=8_000))
    found, _ = answer(stays)

    assert found.ratio == pytest.approx(1.0, abs=0.03)


def test_the_fast_run_is_as_long_as_asked_and_agrees():
    found = fast_answer(replace(QUESTION, load=Load(4, tokens=200_000)))

    assert (found.tokens, found.method) == (200_000, "monte_carlo")
    assert found.ratio == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    "changes", [{"mode": Mode.STEP_SYNC}, {"handoff_ms": 1.0}, {"deadline_ms": 50.0}], ids=str
)
def test_the_fast_run_refuses_what_it_does_not_know_of(changes):
    with pytest.raises(ConfigError, match="--fast"):
        fast_answer(replace(QUESTION, **changes))
