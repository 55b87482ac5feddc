"""Entropy, largest probability and largest logits, also where logits are -inf or NaN."""

from __future__ import annotations

import math

import pytest
import torch

from python_backend.runner.torch_runner import signals

NAN, NEVER = math.nan, -math.inf


def entropies(*rows: list[float]) -> list[float]:
    return signals.entropy(signals.log_probs(torch.tensor(rows))).tolist()


def test_entropy_is_in_nats_and_runs_from_certainty_to_log_vocabulary() -> None:
    uniform, certain, coin = entropies([3.0] * 4, [200.0, 0.0, 0.0, 0.0], [0.0, 0.0, -200.0, -200.0])

    assert (uniform, certain, coin) == pytest.approx((math.log(4), 0.0, math.log(2)), abs=1e-6)


def test_impossible_tokens_add_nothing() -> None:
    assert entropies([1.0, 2.0, NEVER, NEVER]) == pytest.approx(entropies([1.0, 2.0]), abs=1e-6)
    assert entropies([NEVER, 5.0, NEVER]) == [0.0]


@pytest.mark.parametrize("broken", [[NAN, 1.0, 2.0], [1.0, math.inf, 2.0], [NEVER, NEVER, NEVER]])
def test_a_row_without_a_distribution_is_nan_and_no_other(broken: list[float]) -> None:
    logp = signals.log_probs(torch.tensor([[1.0, 2.0, 3.0], broken, [3.0, 2.0, 1.0]]))

    assert signals.entropy(logp).isnan().tolist() == [False, True, False]
    assert signals.max_prob(logp).isnan().tolist() == [False, True, False]


def test_half_precision_logits_are_widened_and_doubles_kept() -> None:
    logits = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))

    assert signals.log_probs(logits.bfloat16()).dtype == torch.float32
    assert signals.log_probs(logits.double()).dtype == torch.float64


def test_max_prob_is_the_softmax_of_the_largest_logit() -> None:
    logits = torch.tensor([[0.0, math.log(3.0)], [5.0, 5.0]])

    assert signals.max_prob(signals.log_probs(logits)).tolist() == pytest.approx([0.75, 0.5])


def test_largest_logits_come_sorted_downwards_and_never_more_than_there_are() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0], [3.0, 1.0, 2.0]])

    ids, values = signals.largest(logits, 2)

    assert (ids.tolist(), values.tolist()) == ([[1, 2], [0, 2]], [[4.0, 2.0], [3.0, 2.0]])
    assert signals.largest(logits, 9)[0].shape == (2, 3)


def test_no_rows_give_no_numbers() -> None:
    logp = signals.log_probs(torch.empty(0, 5))

    assert (signals.entropy(logp).shape, signals.max_prob(logp).shape) == ((0,), (0,))
