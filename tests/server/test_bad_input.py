"""Every bad input gets an error that names the field, while others stream on undisturbed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from tests.server.clients import Answer, generate, grpc_stream, post, stream, text_of
from tests.server.test_doors import DEMO, DOORS, PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def others(server: TritonServer) -> Iterator[None]:
    """Four streams that go on all the time and must all be right."""
    stop = threading.Event()
    wrong: list[object] = []

    def client(door: str, number: int) -> None:
        while not stop.is_set():
            demo = DEMO[number % 8]
            events = stream(server, door, text_input=demo["prompt"], max_tokens=20, routing_algorithm="fixed")
            if seen.setdefault(demo["prompt"], text_of(events)) != text_of(events):
                wrong.append(events)

    seen: dict[str, str] = {}
    threads = [threading.Thread(target=client, args=(DOORS[n % 2], n)) for n in range(4)]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


def refused(answer: Answer, *words: str) -> None:
    assert answer.status == 400, answer
    assert all(word in answer.error for word in words), answer.error
    assert "Traceback" not in answer.error
    assert ".py" not in answer.error


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"text_input": ""}, "text_input"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -3}, "max_tokens"),
        ({"max_tokens": 2_000_000_000}, "max_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": 1e30}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_tokens": 5}, "min_tokens"),
        ({"min_length": -1}, "min_tokens"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"logit_bias": '{"100000": 1}'}, "logit_bias"),
        ({"logit_bias": "{"}, "logit_bias"),
        ({"bad_words": ["turn", ""]}, "bad_words"),
        ({"text_input": PROMPT * 500}, "prompt"),
        ({"routing_algorithm": "no_such"}, "no_such"),
        ({"routing_config": "{"}, "routing_config"),
        ({"routing_config": "[1]"}, "routing_config"),
        ({"routing_config": '{"cutoff": [1]}'}, "routing_config"),
        ({"routing_config": '{"no_such": 1}'}, "no_such"),
        ({"no_such_option": 1}, "no_such_option"),
        ({"exclude_input_in_output": False, "stream": True}, "exclude_input_in_output"),
    ],
)
def test_a_bad_value_is_refused_naming_its_field(
    server: TritonServer, door: str, body: dict[str, object], field: str
) -> None:
    refused(generate(server, door, **{"text_input": PROMPT, "max_tokens": 4, **body}), "TR_", field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"beam_width": 4}, "beam_width"),
        ({"num_return_sequences": 2}, "num_return_sequences"),
        ({"end_id": 77}, "end_id"),
    ],
)
def test_what_the_ensemble_does_not_support_is_refused_and_its_inert_value_is_not(
    server: TritonServer, body: dict[str, object], field: str
) -> None:
    refused(generate(server, "ensemble", text_input=PROMPT, max_tokens=4, **body), field)


@pytest.mark.parametrize(
    ("sampling", "field"),
    [
        ({"n": 2}, "n"),
        ({"no_such": 1}, "no_such"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"stop": [1]}, "stop"),
        ({"temperature": "NaN"}, "temperature"),
        ({"max_tokens": 5}, "given twice"),
    ],
)
def test_a_bad_sampling_parameter_is_refused_by_name(
    server: TritonServer, sampling: dict[str, object], field: str
) -> None:
    body = {"text_input": PROMPT, "max_tokens": 4, "sampling_parameters": json.dumps(sampling)}
    refused(generate(server, "token_router", **body), field)


@pytest.mark.parametrize("body", [{}, {"text_input": PROMPT, "messages": "[]"}])
def test_exactly_one_of_text_and_messages_is_needed(server: TritonServer, body: dict[str, str]) -> None:
    refused(generate(server, "token_router", max_tokens=4, **body), "text_input")


def test_a_token_id_out_of_range_is_refused_by_position(server: TritonServer) -> None:
    for name in ("small", "large", "router"):
        refused(generate(server, name, input_ids=[1, 2, 128], request_output_len=2), "input_ids")
        refused(generate(server, name, input_ids=[1, -1], request_output_len=2), "input_ids")


def test_a_wrong_type_or_shape_is_refused_by_triton_naming_the_input(server: TritonServer) -> None:
    wrong_type = {"name": "text_input", "shape": [1], "datatype": "INT32", "data": [1]}
    wrong_shape = {"name": "text_input", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]}
    for tensor in (wrong_type, wrong_shape):
        with grpc_stream(server) as opened:
            opened.ask("ensemble", text_input=PROMPT, max_tokens=True)
            error, is_final = opened.read()
        assert (is_final, "max_tokens" in str(error)) == (True, True)
        answer = post(server, "/v2/models/token_router/infer", {"inputs": [tensor]})
        assert answer.status >= 400


def test_several_rows_at_once_are_refused(server: TritonServer) -> None:
    inputs = [
        {"name": "text_input", "shape": [3, 1], "datatype": "BYTES", "data": ["a", "b", "c"]},
        {"name": "max_tokens", "shape": [3, 1], "datatype": "INT32", "data": [1, 1, 1]},
    ]
    answer = post(server, "/v2/models/ensemble/infer", {"inputs": inputs})
    assert answer.status in (400, 501), answer


@pytest.mark.parametrize("door", DOORS)
def test_an_id_that_is_in_use_is_refused_and_can_be_used_again_later(server: TritonServer, door: str) -> None:
    body = {"text_input": PROMPT, "max_tokens": 800, "ignore_eos": True}
    with grpc_stream(server) as first, grpc_stream(server) as second:
        first.ask(door, request_id="mine", stream=True, **body)
        first.read()
        second.ask(door, request_id="mine", stream=True, **body)
        error, is_final = second.read()
        assert (is_final, "TR_ALREADY_EXISTS" in str(error), "mine" in str(error)) == (True, True, True)
        first.cancel()
    with grpc_stream(server) as other:
        other.ask(door, request_id="other", text_input=PROMPT, max_tokens=2)
        assert len(other.read_all()) == 1
