"""One value, up to three sources, one meaning."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backend.server.contracts import ENSEMBLE, INERT, ROUTER, TEXT
from python_backend.server.values import json_object, values_of
from router_backend.core.errors import RequestError


def strings(*texts: str) -> Any:
    return np.array([text.encode() for text in texts], dtype=object)


def sampling(**options: object) -> dict[str, Any]:
    return {"sampling_parameters": strings(json.dumps(options))}


def refusal(tensors: dict[str, Any], parameters: dict[str, Any] | None = None) -> str:
    with pytest.raises(RequestError) as caught:
        values_of(TEXT, tensors, parameters or {})
    return str(caught.value)


def test_tensors_become_python_values_by_their_kind() -> None:
    tensors = {
        "text_input": strings("größe"),
        "stream": np.array([True]),
        "max_tokens": np.array([7], dtype=np.int32),
        "temperature": np.array([0.7], dtype=np.float32),
        "seed": np.array([2**64 - 1], dtype=np.uint64),
        "stop": strings("a", ""),
    }
    assert values_of(TEXT, tensors, {}) == {
        "text_input": "größe",
        "stream": True,
        "max_tokens": 7,
        "temperature": 0.7,
        "seed": 2**64 - 1,
        "stop": ("a", ""),
    }


def test_one_row_of_a_batch_is_read_like_no_batch() -> None:
    tensors = {"input_ids": np.array([[3, 4]], dtype=np.int32), "streaming": np.array([[False]])}
    assert values_of(ROUTER, tensors, {}) == {"input_ids": (3, 4), "streaming": False}


def test_options_come_from_json_and_from_request_parameters() -> None:
    tensors = sampling(max_tokens="16", temperature="0.5", top_k=4.0, ignore_eos="true", stop="x", seed=None)
    parameters = {"top_p": 0.5, "id": "me", "timeout": 3, "sequence_id": 0, "priority": 1}
    assert values_of(TEXT, tensors, parameters) == {
        "max_tokens": 16,
        "temperature": 0.5,
        "top_k": 4,
        "ignore_eos": True,
        "stop": ("x",),
        "top_p": 0.5,
    }


def test_penalties_and_bans_come_from_json_with_numbers_as_strings() -> None:
    tensors = sampling(
        min_p="0.1", repetition_penalty="1.5", presence_penalty=-1, frequency_penalty="0.25", min_tokens="3"
    ) | {"min_length": np.array([3], dtype=np.int32)}
    parameters = {"logit_bias": {"7": -2.5, "8": "1"}, "bad_words": ["x", "New York"]}
    assert values_of(TEXT, tensors, parameters) == {
        "min_p": 0.1,
        "repetition_penalty": 1.5,
        "presence_penalty": -1.0,
        "frequency_penalty": 0.25,
        "min_tokens": 3,
        "min_length": 3,
        "logit_bias": '{"7": -2.5, "8": "1"}',
        "bad_words": ("x", "New York"),
    }


def test_a_value_given_twice_must_agree() -> None:
    tensors = {"max_tokens": np.array([5], dtype=np.int32), **sampling(max_tokens=5)}
    assert values_of(TEXT, tensors, {"max_tokens": "5"}) == {"max_tokens": 5}
    assert "max_tokens: given twice with different values (5 and 6)" in refusal(tensors, {"max_tokens": 6})


def test_the_shortest_decimal_of_a_float32_equals_the_same_number_in_json() -> None:
    tensors = {"temperature": np.array([0.1], dtype=np.float32), **sampling(temperature=0.1)}
    assert values_of(TEXT, tensors, {}) == {"temperature": 0.1}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": "many"}, "max_tokens: 'many' is not a INT32"),
        ({"max_tokens": 1.5}, "max_tokens: 1.5 is not a INT32"),
        ({"max_tokens": True}, "max_tokens: True is not a INT32"),
        ({"max_tokens": float("inf")}, "max_tokens: inf is not a INT32"),
        ({"temperature": [1]}, "temperature: [1] is not a FP32"),
        ({"ignore_eos": 3}, "ignore_eos: 3 is not a BOOL"),
        ({"stop": [1]}, "stop: must be a string or a list of strings"),
        ({"stop": 1}, "stop: must be a string or a list of strings"),
        ({"no_such": 1}, "no_such: unknown or unsupported"),
        ({"text_input": "x"}, "text_input: unknown or unsupported"),
        ({"n": 2}, "n: 2.0 is not supported yet"),
        ({"logprobs": 1.5}, "logprobs: 1.5 is not a INT32"),
        ({"bad_words": [1]}, "bad_words: must be a string or a list of strings"),
        ({"min_tokens": "few"}, "min_tokens: 'few' is not a INT32"),
        ({"repetition_penalty": {}}, "repetition_penalty: {} is not a FP32"),
        ({"logit_bias": [1]}, "logit_bias: [1] is not a JSON object of plain values"),
        ({"logit_bias": {"1": [2]}}, "logit_bias: {'1': [2]} is not a JSON object of plain values"),
        ({"return_logprobs": True}, "return_logprobs: unknown or unsupported"),
    ],
)
def test_what_cannot_be_read_or_served_is_refused_by_name(options: dict[str, object], named: str) -> None:
    assert named in refusal(sampling(**options))


def test_shapes_and_bytes_that_are_wrong_are_refused_by_name() -> None:
    assert "max_tokens: must hold one element, got shape [2]" in refusal({"max_tokens": np.array([1, 2])})
    assert "text_input: not UTF-8" in refusal({"text_input": np.array([b"\xff"], dtype=object)})
    assert "mystery: unknown input" in refusal({"mystery": np.array([1])})


def test_text_that_is_not_a_json_object_is_refused_by_name() -> None:
    assert json_object("field", " ") == {}
    for text, why in (("{", "not JSON"), ("[1]", "must be a JSON object, got list")):
        with pytest.raises(RequestError, match=f"field: {why}"):
            json_object("field", text)


def test_a_door_without_parameters_refuses_all_but_tritons_own() -> None:
    assert values_of(ENSEMBLE, {}, {"id": "x", "priority": 2}) == {}
    with pytest.raises(RequestError, match="temperature"):
        values_of(ENSEMBLE, {}, {"temperature": 1.0})


@pytest.mark.parametrize("name", sorted(INERT))
def test_inert_values_are_accepted_and_forgotten(name: str) -> None:
    for value in INERT[name]:
        options = {name: list(value) if isinstance(value, tuple) else value}
        assert values_of(TEXT, sampling(**options), {}) == {}


@given(st.dictionaries(st.sampled_from(["max_tokens", "top_k", "seed"]), st.integers(0, 2**31 - 1)))
def test_whole_numbers_mean_the_same_as_numbers_and_as_strings(options: dict[str, int]) -> None:
    as_strings = {name: str(value) for name, value in options.items()}
    assert values_of(TEXT, sampling(**options), {}) == values_of(TEXT, sampling(**as_strings), {}) == options
