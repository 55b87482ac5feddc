"""Penalties, biases and bans out of the tensors of any door."""

from __future__ import annotations

from typing import Any

import pytest

from python_backend.server.constraints import constraints_of
from router_backend.core.errors import RequestError


def test_nothing_given_is_nothing_said() -> None:
    assert constraints_of({"text_input": "a", "bad_words": (), "logit_bias": ""}) == {}


def test_everything_given_is_said() -> None:
    values: Any = {
        "min_p": 0.1,
        "repetition_penalty": 1.5,
        "presence_penalty": -1.0,
        "frequency_penalty": 0.0,
        "min_tokens": 3,
        "logit_bias": '{"7": -2.5, "8": "1"}',
        "bad_words": ("x", "New York"),
        "bad_words_list": (7, 8, 9, 0, 2, 3, -1, -1),
    }
    assert constraints_of(values) == {
        "min_p": 0.1,
        "repetition_penalty": 1.5,
        "presence_penalty": -1.0,
        "frequency_penalty": 0.0,
        "min_tokens": 3,
        "logit_bias": ((7, -2.5), (8, 1.0)),
        "bad_words": ("x", "New York"),
        "bad_ids": ((7, 8), (9,)),
    }


def test_min_length_is_another_name_of_min_tokens() -> None:
    assert constraints_of({"min_length": 4}) == constraints_of({"min_tokens": 4, "min_length": 4})
    with pytest.raises(RequestError, match="min_tokens: 4 and min_length differ"):
        constraints_of({"min_tokens": 4, "min_length": 5})


def test_one_empty_bad_word_means_none() -> None:
    assert constraints_of({"bad_words": ("",)}) == {"bad_words": ()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "logit_bias: not JSON"),
        ("[1]", "logit_bias: must be a JSON object"),
        ('{"-1": 1}', "logit_bias: '-1' is no token id: use decimal ids as keys"),
        ('{"1234567890": 1}', "logit_bias: '1234567890' is no token id"),
        ('{"five": 1}', "logit_bias: 'five' is no token id"),
        ('{"5": "much"}', r"logit_bias\[5\]: 'much' is no number"),
        ('{"5": true}', r"logit_bias\[5\]: True is no number"),
        ('{"5": [1]}', r"logit_bias\[5\]: \[1\] is no number"),
        ('{"5": 1' + "0" * 400 + "}", r"logit_bias\[5\]: 10+ is no number"),
    ],
)
def test_a_bias_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        constraints_of({"logit_bias": text})


def test_words_without_an_end_are_padding() -> None:
    assert constraints_of({"bad_words_list": (0, 0, -1, -1)}) == {"bad_ids": ()}


@pytest.mark.parametrize("flat", [(7, 8, 3, -1), (7, 8, 0, -1), (7, 8, 2, 1), (7, 2, 1)])
def test_word_ends_that_do_not_fit_the_ids_are_refused(flat: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match=r"bad_words_list: word ends \[.*\] must rise from 1 to at most"):
        constraints_of({"bad_words_list": flat})
