"""The mixture: authors by weight, the same on every model, nothing discarded."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.errors import ConfigError
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import Needs
from tests.builders import request
from tests.unit.policies.steps import LARGE, SMALL, Rows, place, policy, sequence

WEIGHTS = {"small": 0.5, "large": 0.3, "huge": 0.2}


def test_every_model_sends_a_row_to_the_same_author():
    seeds, out_steps = list(range(40)), list(range(40))
    there = []
    for model in range(3):
        where = place(model, 3)
        rows = Rows(seeds=seeds, out_step=out_steps, model=model)
        answer = policy("mixture", where, **WEIGHTS).route(rows.batch())
        there.append([where.peers[k - 1] if k else model for k in answer.tolist()])

    assert there[0] == there[1] == there[2]
    assert set(there[0]) == {0, 1, 2}


def test_the_first_author_is_drawn_too():
    mixture = policy("mixture", place(0, 3), **WEIGHTS)
    entries = [mixture.entry(request(sampling=Sampling(seed=seed))) for seed in range(3000)]

    # Three standard deviations of 3,000 draws are at most 0.028.
    assert np.abs(np.bincount(entries) / 3000 - [0.5, 0.3, 0.2]).max() < 0.028


def test_a_step_decides_about_the_next_position():
    mixture = policy("mixture", 0, small=0.5, large=0.5)
    route = mixture.route(Rows(seeds=[5] * 20, out_step=list(range(20))).batch())
    prompt = sequence(1, seed=5).tokens
    entries = [
        mixture.entry(request(prompt=prompt + [0] * extra, sampling=Sampling(seed=5))) for extra in range(20)
    ]

    assert route.tolist() == entries


def test_a_mixture_asks_for_nothing_and_keeps_everything():
    assert policy("mixture", 0).needs == Needs()
    assert policy("mixture", 0).send(sequence(1), LARGE).loc == 4
    assert policy("mixture", 1).send(sequence(1, model=1), SMALL).loc == 4


def test_a_model_without_weight_never_writes():
    mixture = policy("mixture", place(0, 3), large=1)

    assert set(mixture.route(Rows(seeds=list(range(500))).batch()).tolist()) == {1}


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"small": 0.5, "large": 0.4}, "mixture: the weights of small, large add up to 0.9, not 1"),
        ({"small": 1.5, "large": -0.5}, "mixture.large: weight -0.5 must be finite and not negative"),
        ({"small": float("inf")}, "mixture.small: weight inf must be finite"),
        ({"huge": 1.0}, "mixture.huge: unknown parameter; known are large, small"),
    ],
)
def test_weights_that_are_no_distribution_are_refused_by_name(params, complaint):
    with pytest.raises(ConfigError, match=complaint):
        policy("mixture", 0, **params)
