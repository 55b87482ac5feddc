"""CITER, R2R and Co-LLM on hand-written scores: operators, what is kept, who decides about the cutoff."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.errors import ConfigError
from router_backend.policies.co_llm import eta
from router_backend.scheduler.batch import Needs
from tests.builders import request
from tests.unit.policies.steps import HUGE, INF, LARGE, NAN, SMALL, Rows, place, policy, sequence

PUBLISHED = ("citer", "r2r", "co_llm")
SCORES = [0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("name", "leaves"), [("citer", [1, 0, 0]), ("r2r", [0, 1, 1]), ("co_llm", [0, 0, 1])]
)
def test_each_compares_with_its_published_operator(name, leaves):
    step = Rows(scores={name: SCORES}).batch()

    assert policy(name, 0, cutoff=0.5).route(step).tolist() == leaves
    assert step.num_unreadable == 0


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_score_that_is_no_number_stays_small_and_is_counted(name):
    step = Rows(scores={name: [NAN, INF, -INF]}).batch()

    assert policy(name, 0, cutoff=0.5).route(step).tolist() == [0, 0, 0]
    assert step.num_unreadable == 3


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_small_side_asks_for_its_head_and_the_large_side_for_nothing(name):
    assert policy(name, 0).needs == Needs(heads=(name,))
    assert policy(name, 0, head="mine").needs == Needs(heads=("mine",))
    assert policy(name, 1).needs == Needs()


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_large_side_returns_after_k_tokens_whatever_they_are(name):
    step = Rows(stay=[1, 2, 3], model=1).batch()

    assert policy(name, 1).route(step).tolist() == [1, 1, 1]
    assert policy(name, 1, k=2).route(step).tolist() == [0, 1, 1]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_small_side_discards_the_large_side_keeps_and_the_small_one_starts(name):
    assert policy(name, 0).send(sequence(1), LARGE).loc == 3
    assert policy(name, 1).send(sequence(1, model=1), SMALL).loc == 4
    assert policy(name, 1).entry(request()) == SMALL


@pytest.mark.parametrize("model", [0, 1])
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_cutoff_is_the_requests_else_the_artefacts(name, model):
    assert policy(name, model, head="mine", cutoff=0.7).cutoff == 0.7
    assert policy(name, model, head="mine").cutoff == 0.2


def test_two_of_three_models_can_be_the_pair():
    small = policy("r2r", place(0, 3), cutoff=0.5, large="large")
    medium = policy("r2r", place(1, 3), cutoff=0.5, small="large")

    assert small.route(Rows(scores={"r2r": SCORES}).batch()).tolist() == [0, 1, 1]
    assert medium.route(Rows(scores={"r2r": SCORES}, model=1).batch()).tolist() == [0, 2, 2]
    assert medium.entry(request()) == LARGE
    assert medium.send(sequence(1, model=1), HUGE).loc == 3


def test_eta_falls_from_one_to_the_cutoff_by_the_published_curves():
    steps = np.array([0, 5, 10, 15, 99])

    assert eta(steps, 0.4, "constant", 10).tolist() == [0.4] * 5
    assert eta(steps, 0.4, "linear", 10) == pytest.approx([1.0, 0.7, 0.4, 0.4, 0.4])
    assert eta(steps, 0.4, "cosine", 10) == pytest.approx([1.0, 0.7, 0.4, 0.4, 0.4])
    assert eta(steps, 0.16, "exponential", 10) == pytest.approx([1.0, 0.4, 0.16, 0.16, 0.16])
    assert eta(np.array([2]), 0.4, "cosine", 8) == pytest.approx([0.4 + 0.3 * (np.sqrt(0.5) + 1)])


def test_the_warm_up_counts_answer_tokens_per_request():
    step = Rows(scores={"co_llm": [0.6, 0.6, 1.0]}, out_step=[0, 15, 0]).batch()

    assert policy("co_llm", 0, cutoff=0.5, warmup="linear").route(step).tolist() == [0, 1, 0]


def test_a_limit_equal_to_the_score_in_single_precision_does_not_defer():
    step = Rows(scores={"co_llm": [0.15, 0.1500001]}).batch()

    assert policy("co_llm", 0, cutoff=0.15).route(step).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "params", "complaint"),
    [
        ("citer", {"head": 3}, "citer.head: 3 is not a text"),
        ("citer", {"cutof": 1}, "citer.cutof: unknown parameter; known are cutoff, head, k, large, small"),
        ("r2r", {"k": 0}, "r2r.k: 0 is not a whole number of at least 1"),
        ("r2r", {"large": "small"}, "r2r: needs two models, small and large are both 'small'"),
        ("r2r", {"large": "huge"}, "r2r.large: 'huge' is not one of large, small"),
        ("co_llm", {"warmup": "log"}, "co_llm.warmup: 'log' is not one of constant, cosine"),
        ("co_llm", {"warmup": "exponential", "cutoff": -1}, "co_llm.cutoff: -1.0 must be above 0 with"),
        ("co_llm", {"warmup_steps": 0}, "co_llm.warmup_steps: 0 is not a whole number"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(name, params, complaint):
    with pytest.raises(ConfigError, match=complaint):
        policy(name, 0, **params)


@pytest.mark.parametrize("model", [0, 1])
def test_a_head_that_the_small_models_runner_has_not_is_refused_on_every_model(model):
    with pytest.raises(ConfigError, match=r"r2r.head: 'yours' is not loaded on small; loaded: citer, co_llm"):
        policy("r2r", model, head="yours")
    with pytest.raises(ConfigError, match=r"citer.head: 'citer' is not loaded on small; loaded: none"):
        policy("citer", place(model, heads={"large": {"citer": 0.9}}))
