"""Points are judged within a seed, against mixing the two models and against query-level routing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tools.pareto.frontier import Interval, Seen, interval, points
from tools.pareto.query_classifier import fitted
from tools.pareto.served import fresh_questions


def seed_of(speed: float) -> list[Seen]:
    """A machine that is `speed` times as fast; query-level routing lies on the line, the router above it."""
    return [
        Seen("small_only", None, 0.3, 0.0, 300.0 * speed),
        Seen("large_only", None, 1.0, 1.0, 100.0 * speed),
        Seen("query_level", 0.5, 0.65, 0.5, 200.0 * speed),
        Seen("r_stitch", 0.4, 0.9, 0.1, 200.0 * speed),
    ]


def test_a_machine_that_changes_its_pace_between_seeds_changes_no_distance() -> None:
    found = points([seed_of(1.0), seed_of(0.5), seed_of(2.0)])

    assert [one.policy for one in found] == ["small_only", "large_only", "query_level", "r_stitch"]
    assert [one.above_line.mean for one in found] == pytest.approx([0.0, 0.0, 0.0, 0.25])
    assert [one.above_query.mean for one in found] == pytest.approx([0.0, 0.0, 0.0, 0.25])
    assert found[-1].above_line.least == pytest.approx(0.25)


def test_a_point_slower_than_the_large_model_is_held_against_the_large_model() -> None:
    slow = [*seed_of(1.0), Seen("r_stitch", 0.01, 1.0, 0.7, 50.0)]

    assert points([slow, slow])[-1].above_line.mean == pytest.approx(0.0)


def test_an_interval_is_student_s() -> None:
    assert interval([1.0, 3.0]) == Interval(2.0, pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2)))
    assert interval([5.0]).half == math.inf


def test_the_classifier_finds_the_token_that_makes_a_prompt_hard() -> None:
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(3, 60, size=8).tolist()) for _ in range(400)]
    is_wrong = [7 in prompt for prompt in prompts]
    classifier = fitted(prompts, is_wrong)

    scores = classifier.scores(prompts)
    assert scores[np.array(is_wrong)].min() > scores[~np.array(is_wrong)].mean()
    (cutoff,) = classifier.cutoffs(prompts, [0.25])
    assert np.mean(scores >= cutoff) == pytest.approx(0.25, abs=0.01)
    assert len(str(classifier.options(cutoff)["weights"]).split(",")) == len(classifier.weights)


def test_the_same_seed_asks_the_same_questions() -> None:
    assert fresh_questions(3, 5) == fresh_questions(3, 5)
    assert fresh_questions(3, 5) != fresh_questions(4, 5)
