"""Cascades: how an answer is scored, and who goes on."""

from __future__ import annotations

import math

import numpy as np
import pytest

from router_backend.policies.cascade import Cascade, score
from router_backend.scheduler.batch import StepBatch, StepOutput
from tests.unit.policies.steps import HUGE, LARGE, NAN, SMALL, place, policy, sequence


def cascade(model: int, **params: float) -> Cascade:
    made = policy("cascade", place(model, 3), **params)
    assert isinstance(made, Cascade)
    return made


def test_every_model_but_the_last_holds_back():
    assert [cascade(model).holds_back for model in range(3)] == [True, True, False]


def test_the_score_is_the_geometric_mean_of_the_probabilities():
    small, row = cascade(SMALL), sequence()
    for probability in (0.5, 0.25, NAN):
        step = StepBatch(
            SMALL, [row], StepOutput(np.zeros(1, np.int64), np.log([probability]).astype(np.float32))
        )
        assert small.route(step).tolist() == [0]
    assert score(row) == pytest.approx(math.sqrt(0.125), rel=1e-6)
    assert step.num_unreadable == 1


def test_a_score_below_the_cutoff_goes_to_the_next_model_which_starts_from_scratch():
    row = sequence(out_step=4)
    row.held = 4
    row.scratch = {"logprob": -2.0, "count": 4}
    assert cascade(SMALL, cutoff=math.exp(-0.5)).at_end(row) is None
    assert cascade(SMALL, cutoff=0.7).at_end(row) == LARGE
    assert cascade(LARGE, cutoff=0.7).at_end(row) == HUGE
    message = cascade(SMALL).send(row, LARGE)
    assert (message.token_ids, message.loc, message.provisional) == ((1, 2, 3), 3, 0)


def test_an_answer_of_which_nothing_could_be_read_is_accepted():
    assert cascade(SMALL, cutoff=2.0).at_end(sequence()) is None


def test_the_last_model_reads_no_scores():
    step = StepBatch(HUGE, [sequence(model=2)], StepOutput(np.zeros(1, np.int64)))
    assert cascade(HUGE).route(step).tolist() == [0]
