"""Routing matrices: the named algorithms, and what is refused."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.routing import Matrix, Routing, discard_and_return, discard_and_stay, mixture

KEEP = ((1.0, 1.0), (1.0, 1.0))


def test_discard_and_return_commits_one_token_per_pass() -> None:
    routing = discard_and_return(0.35)

    assert routing == Routing(((0.65, 0.35), (1.0, 0.0)), ((1.0, 0.0), (1.0, 0.0)))
    assert routing.tokens_per_step() == pytest.approx((0.65, 1.0))


def test_discard_and_stay_commits_every_token_of_the_large_model() -> None:
    routing = discard_and_stay(0.1, 0.25)

    assert routing.probabilities == ((0.9, 0.1), (0.25, 0.75))
    assert routing.tokens_per_step() == pytest.approx((0.9, 1.0))


def test_mixture_draws_every_author_by_weight() -> None:
    routing = mixture((0.5, 0.3, 0.2))

    assert routing.probabilities == ((0.5, 0.3, 0.2),) * 3
    assert routing.tokens_per_step() == pytest.approx((1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("probabilities", "commits", "message"),
    [
        ((), (), "routing: at least one model is needed"),
        (((1.0,), (1.0,)), KEEP, r"routing\[0\]: 2 numbers expected, one per model, got 1"),
        (((0.5, 0.5), (1.0, 0.0)), ((1.0, 1.0),), "commits: 2 rows expected, one per model, got 1"),
        (((0.5, 0.4), (1.0, 0.0)), KEEP, r"routing\[0\]: probabilities must sum to 1, got 0.9"),
        (((1.5, -0.5), (1.0, 0.0)), KEEP, r"routing\[0\]: every number must be finite and 0 or more"),
        (((0.5, 0.5), (1.0, 0.0)), ((1.0, 0.0), (float("nan"), 0.0)), r"commits\[1\]: every number"),
    ],
)
def test_matrices_that_are_no_matrices_are_refused(
    probabilities: Matrix, commits: Matrix, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Routing(probabilities, commits)


def test_models_that_requests_can_never_share_are_refused() -> None:
    rows = ((0.0, 0.5, 0.5), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))

    with pytest.raises(ConfigError, match="separate groups of models"):
        Routing(rows, ((1.0,) * 3,) * 3)


def test_a_separate_group_that_the_entry_never_reaches_does_no_harm() -> None:
    assert Routing(((1.0, 0.0), (0.0, 1.0)), KEEP).closed_classes() == {frozenset({0})}


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_probability_outside_zero_to_one_is_refused_by_name(value: float) -> None:
    with pytest.raises(ConfigError, match="route_probability: must lie between 0 and 1"):
        discard_and_return(value)
    with pytest.raises(ConfigError, match="return_probability: must lie between 0 and 1"):
        discard_and_stay(0.5, value)
