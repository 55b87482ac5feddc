"""Penalties, biases and bans read a row's own committed tokens and leave raw logits alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from python_backend.runner.torch_runner.constraints import constrained
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import Row
from tests.unit.runner.torch_runner.directories import row

RAW = [2.0, -1.0, 0.5, 1.5, 0.0, -3.0]
NEVER = -math.inf
PROMPT_LEN = 3


def text(*tokens: int, stop_ids: frozenset[int] = frozenset(), **sampling: Any) -> Row:
    """A decode row behind `tokens`, of which the first three are the prompt."""
    return row(
        tokens[-1:],
        start=len(tokens) - 1,
        sampling=Sampling(**sampling),
        history=list(tokens),
        prompt_len=PROMPT_LEN,
        stop_ids=stop_ids,
    )


def edited(one: Row) -> list[float]:
    logits: list[float] = constrained(torch.tensor([RAW]), [one])[0].tolist()
    return logits


def test_a_repetition_penalty_weakens_what_prompt_or_answer_contain() -> None:
    assert edited(text(0, 1, 1, 4, repetition_penalty=2.0)) == [1.0, -2.0, 0.5, 1.5, 0.0, -3.0]


def test_presence_and_frequency_count_the_answer_alone() -> None:
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 0.25}

    assert edited(text(0, 1, 2, 3, 3, 3, 5, **penalties)) == [2.0, -1.0, 0.5, 0.25, 0.0, -3.75]


def test_a_negative_penalty_encourages() -> None:
    assert edited(text(0, 1, 2, 4, presence_penalty=-1.0))[4] == 1.0


def test_a_bias_is_added_and_may_forbid() -> None:
    assert edited(text(0, 1, 2, logit_bias=((1, 5.0), (3, NEVER)))) == [2.0, 4.0, 0.5, NEVER, 0.0, -3.0]


@pytest.mark.parametrize(
    ("bad_words", "banned"),
    [
        (((4,),), {4}),
        (((1, 2, 5),), {5}),
        (((2, 5), (1, 5), (0,)), {5, 0}),
        (((3, 2, 5),), set()),
        (((9, 0, 1, 2, 5),), set()),
        (((),), set()),
    ],
)
def test_a_run_of_tokens_is_banned_when_all_but_its_last_are_there(bad_words: Any, banned: set[int]) -> None:
    logits = edited(text(0, 1, 2, bad_words=bad_words))

    assert {index for index, logit in enumerate(logits) if logit == NEVER} == banned


@pytest.mark.parametrize(("answer", "is_banned"), [((), True), ((1,), True), ((1, 1), False)])
def test_stop_tokens_wait_for_the_least_number_of_answer_tokens(
    answer: tuple[int, ...], is_banned: bool
) -> None:
    logits = edited(text(0, 1, 2, *answer, stop_ids=frozenset({0, 99}), min_tokens=2))

    assert (logits[0] == NEVER, logits[1:]) == (is_banned, RAW[1:])


def test_ids_that_the_model_does_not_have_are_passed_over() -> None:
    one = text(0, 99, 98, 97, repetition_penalty=2.0, presence_penalty=1.0, logit_bias=((99, 1.0),))

    assert edited(one) == [1.0, *RAW[1:]]


def test_only_the_tokens_that_were_fed_count() -> None:
    """The history is the scheduler's own list: what it holds beyond the row is not committed yet."""
    one = text(0, 1, 2, 3, presence_penalty=1.0)

    assert edited(one._replace(history=[0, 1, 2, 3, 4, 5])) == edited(one)


def test_rows_that_ask_for_nothing_cost_nothing_and_raw_logits_stay() -> None:
    logits = torch.tensor([RAW, RAW])
    plain, asking = text(0, 1, 2), text(0, 1, 2, bad_words=((0,),))

    assert constrained(logits, [plain, plain]) is logits
    mixed = constrained(logits, [plain, asking])
    assert (mixed[0].tolist(), mixed[1, 0].item(), logits.tolist()) == (RAW, NEVER, [RAW, RAW])


@pytest.mark.parametrize(
    ("sampling", "is_constrained"),
    [
        ({}, False),
        ({"temperature": 1.0, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "logprobs": 5}, False),
        ({"repetition_penalty": 1.1}, True),
        ({"presence_penalty": -0.1}, True),
        ({"frequency_penalty": 0.1}, True),
        ({"logit_bias": ((1, 0.0),)}, True),
        ({"bad_words": ((1,),)}, True),
        ({"min_tokens": 1}, True),
    ],
)
def test_filters_of_the_draw_are_no_constraints(sampling: dict[str, Any], is_constrained: bool) -> None:
    assert Sampling(**sampling).is_constrained is is_constrained
