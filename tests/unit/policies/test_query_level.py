"""Query-level routing: one look at the prompt, then one model."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.errors import ConfigError
from router_backend.policies.query_level import QueryLevel, prompt_features
from router_backend.scheduler.batch import Needs
from tests.builders import request
from tests.unit.policies.steps import HUGE, LARGE, SMALL, Rows, place, policy


def test_features_have_length_one_and_depend_on_order_only_from_two_grams_on():
    forwards, backwards = (1, 2, 3, 4), (4, 3, 2, 1)

    assert np.linalg.norm(prompt_features(forwards, 64, 3)) == pytest.approx(1.0)
    assert prompt_features(forwards, 64, 1).tolist() == prompt_features(backwards, 64, 1).tolist()
    assert prompt_features(forwards, 64, 2).tolist() != prompt_features(backwards, 64, 2).tolist()


def test_a_prompt_shorter_than_its_ngrams_still_has_features():
    assert np.count_nonzero(prompt_features((7,), 16, 3)) == 1


def test_a_weighted_prompt_goes_to_the_large_model_and_stays_there():
    bucket = int(np.argmax(prompt_features((7,), 16, 1)))
    weights = ",".join("8" if index == bucket else "-8" for index in range(16))
    router = policy("query_level", 0, weights=weights, ngram=1)

    assert router.entry(request(prompt=(7, 7))) == LARGE
    assert router.entry(request(prompt=(8, 9))) == SMALL
    assert router.route(Rows(out_step=[0, 5]).batch()).tolist() == [0, 0]
    assert router.needs == Needs()


def test_a_score_at_the_cutoff_is_the_large_models():
    router = policy("query_level", place(0, 3), weights="0,0")

    assert isinstance(router, QueryLevel)
    assert router.score((1, 2)) == 0.5
    assert router.entry(request()) == HUGE
    assert policy("query_level", place(0, 3), weights="0", bias=-0.1).entry(request()) == SMALL
    assert policy("query_level", place(0, 3), weights="0", large="large").entry(request()) == LARGE


def test_a_huge_weight_does_not_overflow():
    router = policy("query_level", 0, weights="1e300")

    assert isinstance(router, QueryLevel)
    assert router.score((1,)) == 1.0


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({}, "query_level.weights: must be numbers separated by commas"),
        ({"weights": "1,x"}, "query_level.weights: must be numbers separated by commas"),
        ({"weights": "1,nan"}, "query_level.weights: must be finite numbers"),
        ({"weights": "1", "ngram": 9}, "query_level: ngram must be at most 8 and bias finite"),
        ({"weights": "1", "large": "big"}, "query_level.large: 'big' is not one of large, small"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(params, complaint):
    with pytest.raises(ConfigError, match=complaint):
        policy("query_level", 0, **params)
