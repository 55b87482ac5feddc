"""What a client may discourage or forbid: ranges, bounds, and errors that name field, value and cure."""

from __future__ import annotations

import math
from typing import Any

import pytest

from python_backend.loops.base import Ask
from python_backend.loops.constraint_fields import (
    read_bad_ids,
    read_bad_words,
    read_logit_bias,
    read_min_tokens,
    read_penalties,
)
from router_backend.core.errors import RequestError
from router_backend.core.request import Sampling

WRITTEN = Sampling(0.5, 3, 0.9, 7)


def penalties(**fields: Any) -> Sampling:
    return read_penalties(Ask(text="a", **fields), WRITTEN)


def test_an_ask_that_says_nothing_changes_nothing() -> None:
    assert penalties() == WRITTEN


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("min_p", (0.0, 1.0)),
        ("repetition_penalty", (1e-9, 2.0)),
        ("presence_penalty", (-2.0, 2.0)),
        ("frequency_penalty", (-2.0, 2.0)),
    ],
)
def test_the_edges_of_a_range_belong_to_it(field: str, values: tuple[float, ...]) -> None:
    for value in values:
        assert getattr(penalties(**{field: value}), field) == value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_p": -0.1}, "min_p: -0.1 must be from 0 to 1 (0 = off)"),
        ({"min_p": math.nan}, "min_p: nan must be"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: 0.0 must be above 0 and at most 2 (1 = off)"),
        ({"repetition_penalty": 2.1}, "repetition_penalty: 2.1"),
        ({"repetition_penalty": math.nan}, "repetition_penalty: nan"),
        ({"presence_penalty": -2.1}, "presence_penalty: -2.1 must be from -2 to 2 (0 = off)"),
        ({"frequency_penalty": math.inf}, "frequency_penalty: inf"),
    ],
)
def test_what_lies_outside_a_range_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        penalties(**fields)
    assert message in str(caught.value)


def test_an_answer_has_no_more_least_tokens_than_it_may_have() -> None:
    assert [read_min_tokens(asked, 5) for asked in (None, 0, 5)] == [0, 0, 5]
    for asked in (-1, 6):
        with pytest.raises(RequestError, match=rf"min_tokens: {asked} must be from 0 \(off\) to max_tokens"):
            read_min_tokens(asked, 5)


def test_biases_are_sorted_by_token() -> None:
    assert read_logit_bias(((5, 1.0), (2, -100.0)), 6) == ((2, -100.0), (5, 1.0))


@pytest.mark.parametrize(
    ("biases", "message"),
    [
        (((6, 1.0),), "logit_bias: 6 is no token id: use 0..5"),
        (((2, 100.1),), "logit_bias[2]: 100.1 must be from -100 to 100"),
        (((2, math.nan),), "logit_bias[2]: nan"),
        (((2, 1.0), (1, 0.0), (2, 3.0)), "logit_bias: 2 is there twice"),
        (((1, 1.0),) * 1025, "logit_bias: 1025 entries, at most 1024"),
    ],
)
def test_biases_that_cannot_be_are_refused(biases: tuple[tuple[int, float], ...], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_logit_bias(biases, 6)
    assert message in str(caught.value)


def spell(word: str) -> tuple[tuple[int, ...], ...]:
    return ((len(word),), (0, len(word)))


def test_every_spelling_of_every_bad_word_is_there_once() -> None:
    assert read_bad_words(("ab", "cd", "e"), spell) == ((2,), (0, 2), (1,), (0, 1))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", ""), 'bad_words: "" is in every text'),
        (("a",) * 129, "bad_words: 129 words, at most 128"),
        (("a" * 257,), "bad_words: a word of 257 characters; at most 256"),
    ],
)
def test_bad_words_are_bounded_and_not_empty(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_bad_words(words, spell)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (((1,), (2, 6)), "bad_words_list: 6 is no token id: use 0..5"),
        (((1,),) * 129, "bad_words_list: 129 words, at most 128"),
        (((1,) * 257,), "bad_words_list: a word of 257 tokens; at most 256"),
    ],
)
def test_bad_words_as_ids_are_bounded_and_in_the_vocabulary(runs: Any, message: str) -> None:
    assert read_bad_ids(((0, 5),), 6) == ((0, 5),)
    with pytest.raises(RequestError) as caught:
        read_bad_ids(runs, 6)
    assert message in str(caught.value)
