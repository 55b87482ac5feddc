"""Tokens are drawn from the right distribution, and from nothing but a row's own numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from python_backend.runner.torch_runner import signals
from python_backend.runner.torch_runner.sampler import inverse_cdf, sample
from router_backend.core.request import ModelIndex, Sampling
from router_backend.scheduler.batch import Row
from tests.unit.runner.torch_runner.directories import row

DRAWS = 4000
LOGITS = [2.0, -1.0, 0.5, 1.5, 0.0, -3.0]


def drawn(logits: torch.Tensor, rows: list[Row], model: int = 0) -> list[int]:
    tokens: list[int] = sample(logits, signals.log_probs(logits), rows, ModelIndex(model)).tolist()
    return tokens


def frequencies(logits: list[float], **sampling: Any) -> np.ndarray[Any, Any]:
    """Shares of each token over many seeds."""
    rows = [row([1], sampling=Sampling(seed=seed, **sampling)) for seed in range(DRAWS)]
    tokens = drawn(torch.tensor([logits] * DRAWS), rows)
    return np.bincount(tokens, minlength=len(logits)) / DRAWS


def softmax(logits: list[float], temperature: float = 1.0) -> np.ndarray[Any, Any]:
    weights = np.exp(np.array(logits) / temperature)
    return weights / weights.sum()


def assert_follows(shares: np.ndarray[Any, Any], probs: np.ndarray[Any, Any]) -> None:
    """Within four standard errors and a few draws of rare tokens; impossible tokens never."""
    slack = 4 * np.sqrt(probs * (1 - probs) / DRAWS) + 3 / DRAWS
    assert np.all(np.abs(shares - probs) <= slack) and not shares[probs == 0].any()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_distribution(temperature: float) -> None:
    assert_follows(frequencies(LOGITS, temperature=temperature), softmax(LOGITS, temperature))


def test_top_k_keeps_the_largest_and_renormalises() -> None:
    kept = np.array([1, 0, 0, 1, 0, 0]) * softmax(LOGITS)

    assert_follows(frequencies(LOGITS, temperature=1.0, top_k=2), kept / kept.sum())


def test_top_p_keeps_the_token_that_crosses_the_limit() -> None:
    probs = softmax(LOGITS)
    kept = np.array([1, 0, 0, 1, 0, 0]) * probs
    limit = float(probs[0] + probs[3] / 2)

    assert_follows(frequencies(LOGITS, temperature=1.0, top_p=limit), kept / kept.sum())


def test_top_p_counts_what_top_k_left() -> None:
    kept = np.array([1, 0, 0, 1, 0, 0]) * softmax(LOGITS)
    share = float(kept[0] / kept.sum())

    assert frequencies(LOGITS, temperature=1.0, top_k=2, top_p=share - 0.01).tolist() == [1, 0, 0, 0, 0, 0]


def test_min_p_keeps_what_is_likely_beside_the_likeliest() -> None:
    probs = softmax(LOGITS)
    kept = np.where(probs >= 0.2 * probs.max(), probs, 0)

    assert np.count_nonzero(kept) == 3
    assert_follows(frequencies(LOGITS, temperature=1.0, min_p=0.2), kept / kept.sum())


def test_a_banned_token_is_neither_drawn_nor_the_greedy_choice() -> None:
    banned = {"bad_words": ((0,),)}
    rest = np.array([0, 1, 1, 1, 1, 1]) * softmax(LOGITS)

    assert drawn(torch.tensor([LOGITS]), [row([1], sampling=Sampling(**banned))]) == [3]
    assert_follows(frequencies(LOGITS, temperature=1.0, **banned), rest / rest.sum())


@pytest.mark.parametrize("sampling", [{"min_p": 1.0}, {"top_k": 1}, {"top_p": 1e-9}, {"top_p": 0.0}])
def test_the_narrowest_filter_is_greedy(sampling: dict[str, Any]) -> None:
    assert frequencies(LOGITS, temperature=5.0, **sampling)[0] == 1.0


def test_filters_wider_than_the_vocabulary_change_nothing() -> None:
    plain = frequencies(LOGITS, temperature=1.0)

    assert frequencies(LOGITS, temperature=1.0, top_k=6, top_p=1.0).tolist() == plain.tolist()
    assert frequencies(LOGITS, temperature=1.0, top_k=99).tolist() == plain.tolist()


def test_greedy_takes_the_lowest_of_equal_ids() -> None:
    logits = torch.tensor([[1.0, 7.0, 7.0, 0.0], [3.0, 3.0, 3.0, 3.0]])

    assert drawn(logits, [row([1]), row([1], sampling=Sampling(temperature=1e-9))]) == [1, 0]


def test_top_k_ranks_equal_logits_by_id() -> None:
    assert set(np.flatnonzero(frequencies([1.0] * 5, temperature=1.0, top_k=2))) == {0, 1}


def test_a_token_depends_on_seed_position_attempt_and_model_and_on_nothing_else() -> None:
    logits = torch.randn(1, 200, generator=torch.Generator().manual_seed(0)).expand(20, -1)

    def tokens(model: int = 0, first_seed: int = 7, **fields: Any) -> tuple[int, ...]:
        hot = [Sampling(temperature=1.5, seed=first_seed + index) for index in range(20)]
        fed = {"token_ids": [1], "start": 9} | fields
        return tuple(drawn(logits, [row(sampling=sampling, **fed) for sampling in hot], model))

    assert tokens() == tokens(blocks=[3, 4], request_id="other", token_ids=[8])
    assert tokens() == tokens(token_ids=[1, 2, 3], start=7)
    others = {tokens(start=10), tokens(attempt=1), tokens(model=1), tokens(first_seed=8)}
    assert tokens() not in others and len(others) == 4


def test_a_row_draws_the_same_alone_and_in_any_company() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(24, 300, generator=generator)
    kinds = [
        Sampling(),
        Sampling(1.0, seed=1),
        Sampling(0.7, 20, seed=2),
        Sampling(1.3, 0, 0.9, seed=3),
        Sampling(0.9, 5, 0.5, seed=4),
        Sampling(1.1, seed=5, min_p=0.05, repetition_penalty=1.3, bad_words=((7,),)),
    ]
    rows = [row([1], start=index, sampling=kinds[index % len(kinds)]) for index in range(24)]

    together = drawn(logits, rows)
    backwards = drawn(logits.flip(0), rows[::-1])[::-1]
    alone = [drawn(logits[index : index + 1], [rows[index]])[0] for index in range(24)]

    assert together == alone == backwards


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=2)])
def test_a_row_without_a_distribution_gets_its_largest_number_and_harms_no_other(sampling: Sampling) -> None:
    logits = torch.tensor([[0.0, 1.0, 99.0], [math.nan, 2.0, 3.0], [99.0, 0.0, 0.0], [math.nan] * 3])

    assert drawn(logits, [row([1], sampling=sampling) for _ in range(4)]) == [2, 2, 0, 0]


def test_the_inverse_of_the_cumulative_skips_what_has_no_weight() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0]] * 4, dtype=torch.float64)
    draws = torch.tensor([0.0, 0.2499, 0.25, 1 - 2**-53], dtype=torch.float64)

    assert inverse_cdf(weights, draws).tolist() == [1, 1, 3, 3]


def test_no_rows_draw_no_tokens() -> None:
    assert drawn(torch.empty(0, 5), []) == []
