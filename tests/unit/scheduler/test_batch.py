"""What passes between runner and policy: router heads by name, and signals that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.request import ModelIndex
from router_backend.scheduler.batch import Needs, StepBatch, StepOutput
from tests.unit.policies.steps import INF, NAN, sequence

OUTPUT = StepOutput(
    np.array([4, 5, 6]), scores={"a": np.array([0.1, 0.2, NAN]), "b": np.array([1.0, 2.0, INF])}
)


def step(*rows: int) -> StepBatch:
    return StepBatch(ModelIndex(0), [sequence() for _ in rows], OUTPUT, np.array(rows))


def test_needs_of_different_heads_unite_in_one_order():
    a, b = Needs(heads=("a",)), Needs(entropy=True, heads=("b",))

    assert a.union(b) == b.union(a) == Needs(entropy=True, heads=("a", "b"))
    assert a.union(a) == a


def test_each_policy_reads_its_own_heads_score_of_its_own_rows():
    assert step(2, 0).score("a").tolist()[1] == 0.1
    assert step(1).score("b").tolist() == [2.0]


def test_a_score_that_was_not_asked_for_is_the_policys_mistake():
    with pytest.raises(AssertionError, match="the policy reads score 'c' but its needs do not ask for it"):
        step(0).score("c")


def test_rows_whose_signals_are_no_numbers_are_counted_once():
    rows = step(0, 2)

    assert rows.num_unreadable == 0
    assert rows.readable(rows.score("a")).tolist() == [True, False]
    assert rows.readable(rows.score("b")).tolist() == [True, False]
    assert rows.num_unreadable == 1
