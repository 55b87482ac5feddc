"""Each door's request becomes one Ask."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from python_backend.loops.base import Ask
from python_backend.server.contracts import ROUTER, TEXT, TOKENS
from python_backend.server.tensors import (
    Asked,
    Envelope,
    Returns,
    reader,
    router_asked,
    text_asked,
    tokens_asked,
)
from router_backend.core.errors import RequestError

READ_TEXT = reader(TEXT, text_asked)
READ_ROUTER = reader(ROUTER, router_asked)
READ_TOKENS = reader(TOKENS, tokens_asked)


def text(value: str) -> Any:
    return np.array([value.encode()], dtype=object)


def ids(*values: int) -> Any:
    return np.array([values], dtype=np.int32)


def one(value: int) -> Any:
    return np.array([[value]], dtype=np.int32)


def test_a_plain_text_request_is_an_ask_with_nothing_else_said() -> None:
    assert READ_TEXT({"text_input": text("hi")}, Envelope()) == Asked(Ask(text="hi"))


def test_a_full_text_request_says_everything() -> None:
    tensors = {
        "text_input": text("hi"),
        "stream": np.array([True]),
        "max_tokens": np.array([3], dtype=np.int32),
        "stop": np.array([b"a", b"b"], dtype=object),
        "routing_algorithm": text("r_stitch"),
        "routing_config": text('{"cutoff": 0.5}'),
        "return_finish_reason": np.array([True]),
        "return_num_input_tokens": np.array([True]),
        "return_num_output_tokens": np.array([True]),
        "return_routing": np.array([True]),
    }
    sampling = {"temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 4, "ignore_eos": True}
    envelope = Envelope("me", json.dumps(sampling), 2_500_000)
    ask = Ask(
        text="hi",
        max_tokens=3,
        temperature=0.5,
        top_k=3,
        top_p=0.9,
        seed=4,
        stop=("a", "b"),
        ignore_eos=True,
        is_streaming=True,
        policy="r_stitch",
        policy_params={"cutoff": 0.5},
        timeout_s=2.5,
        client_id="me",
    )
    assert READ_TEXT(tensors, envelope) == Asked(ask, Returns(True, True, True, True))


def test_messages_are_parsed_and_stand_instead_of_text() -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert READ_TEXT({"messages": text(json.dumps(messages))}, Envelope()).ask == Ask(
        messages=tuple(messages)
    )


def test_the_router_reads_tokens_uid_and_the_inner_names() -> None:
    tensors = {
        "input_ids": ids(5, 6, 0),
        "input_lengths": one(2),
        "request_output_len": one(9),
        "REQUEST_UID": np.array([[7]], dtype=np.uint64),
        "runtime_top_k": one(4),
        "runtime_top_p": np.array([[0.5]], dtype=np.float32),
        "stop_words": np.array([[b"x"]], dtype=object),
        "exclude_input_in_output": np.array([[False]]),
        "return_finish_reason": np.array([[True]]),
        "bad_words": np.array([[b""]], dtype=object),
        "beam_width": one(1),
    }
    ask = Ask(input_ids=(5, 6), max_tokens=9, top_k=4, top_p=0.5, stop=("x",), is_echoing=True)
    assert READ_ROUTER(tensors, Envelope()) == Asked(ask, Returns(finish_reason=True), uid=7)


def test_every_door_reads_penalties_and_bans() -> None:
    tensors = {
        "repetition_penalty": np.array([[1.5]], dtype=np.float32),
        "min_tokens": one(2),
        "logit_bias": np.array([[b'{"7": 1}']], dtype=object),
    }
    meaning = {"repetition_penalty": 1.5, "min_tokens": 2, "logit_bias": ((7, 1.0),)}
    router = {**tensors, "input_ids": ids(1), "bad_words": np.array([[b"x", b"y z"]], dtype=object)}
    alone = {**tensors, "input_ids": ids(1), "bad_words_list": np.array([[[7, 8, 9], [1, 3, -1]]])}
    plain = {name: array.reshape(-1) for name, array in tensors.items()}
    assert READ_ROUTER(router, Envelope()).ask == Ask(input_ids=(1,), bad_words=("x", "y z"), **meaning)
    assert READ_TOKENS(alone, Envelope()).ask == Ask(input_ids=(1,), bad_ids=((7,), (8, 9)), **meaning)
    assert READ_TEXT({"text_input": text("a"), **plain}, Envelope()).ask == Ask(text="a", **meaning)


def test_a_subserver_reads_token_ids_and_the_wish_to_stop() -> None:
    tensors = {"input_ids": ids(1), "request_output_len": one(2), "streaming": np.array([[True]])}
    assert READ_TOKENS(tensors, Envelope()) == Asked(Ask(input_ids=(1,), max_tokens=2, is_streaming=True))
    stop = {**tensors, "stop": np.array([[True]])}
    assert READ_TOKENS(stop, Envelope("me")).is_stop


@pytest.mark.parametrize(
    ("stop", "meaning"), [([b""], ()), ([b"", b"a"], ("", "a")), ([b"a"], ("a",)), ([], ())]
)
def test_one_empty_stop_string_means_none(stop: list[bytes], meaning: tuple[str, ...]) -> None:
    tensors = {"text_input": text("hi"), "stop": np.array(stop, dtype=object)}
    assert READ_TEXT(tensors, Envelope()).ask.stop == meaning


def test_generate_hands_the_timeout_over_as_a_parameter() -> None:
    tensors = {"text_input": text("hi")}
    assert READ_TEXT(tensors, Envelope(parameters_json='{"timeout": 1500000}')).ask.timeout_s == 1.5
    for wrong in ('"soon"', "-1", "true", "1.5", "1" + "0" * 400):
        with pytest.raises(RequestError, match="timeout: must be a whole number of microseconds"):
            READ_TEXT(tensors, Envelope(parameters_json=f'{{"timeout": {wrong}}}'))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "text_input: give either text_input or messages"),
        ({"text_input": text("a"), "messages": text("[]")}, "text_input: give either"),
        ({"messages": text("{")}, "messages: not JSON"),
        ({"messages": text("[" * 100_000)}, "messages: not JSON: maximum recursion"),
        ({"messages": text('[{"role": "\\ud800"}]')}, "messages: has half of a surrogate pair"),
        ({"messages": text('["a"]')}, "messages: must be a JSON list of objects"),
        ({"messages": text("[]"), "tools": text("{}")}, "tools: must be a JSON list of objects"),
        ({"text_input": text("a"), "routing_config": text("[")}, "routing_config: not JSON"),
        ({"text_input": text("a"), "routing_config": text('{"x": [1]}')}, "routing_config: x must be"),
        (
            {
                "text_input": text("a"),
                "stream": np.array([True]),
                "exclude_input_in_output": np.array([False]),
            },
            "exclude_input_in_output: false cannot be combined with streaming",
        ),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_by_field(tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        READ_TEXT(tensors, Envelope())


@pytest.mark.parametrize("length", [-1, 3])
def test_a_length_that_does_not_fit_the_ids_is_refused(length: int) -> None:
    tensors = {"input_ids": ids(1, 2), "request_output_len": one(1), "input_lengths": one(length)}
    with pytest.raises(RequestError, match=f"input_lengths: {length} does not fit the 2 ids"):
        READ_TOKENS(tensors, Envelope())
