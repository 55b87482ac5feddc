"""Both doors over the demo pair: what a client gets for what it sends."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.server.clients import generate, grpc_stream, post, stream, text_of
from tests.source_tree import ROOT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

DEMO = json.loads((ROOT / "model_repository" / "demo_prompts.json").read_text())
PROMPT = DEMO[0]["prompt"]
DOORS = ("token_router", "ensemble")


@pytest.mark.parametrize("door", DOORS)
def test_generate_without_stream_is_one_response_with_the_whole_answer(
    server: TritonServer, door: str
) -> None:
    answer = generate(server, door, text_input=PROMPT, max_tokens=20)
    assert answer.status == 200
    assert answer.body["text_output"] == DEMO[0]["answer"]


@pytest.mark.parametrize("door", DOORS)
def test_streamed_text_joined_is_the_text_of_one_response(server: TritonServer, door: str) -> None:
    for demo in DEMO[:8]:
        events = stream(server, door, text_input=demo["prompt"], max_tokens=20)
        whole = generate(server, door, text_input=demo["prompt"], max_tokens=20)
        assert text_of(events) == whole.body["text_output"]


def test_both_doors_give_the_same_answer(server: TritonServer) -> None:
    answers = [
        generate(server, door, text_input=PROMPT, max_tokens=9, temperature=0.8, top_k=20, top_p=0.9, seed=7)
        for door in DOORS
    ]
    assert answers[0].body["text_output"] == answers[1].body["text_output"] != ""


@pytest.mark.parametrize("door", DOORS)
def test_counts_reason_and_routing_are_returned_when_asked_for(server: TritonServer, door: str) -> None:
    flags = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens", "return_routing")
    body = generate(server, door, text_input=PROMPT, max_tokens=20, **dict.fromkeys(flags, True)).body
    assert body["finish_reason"] == "stop"
    assert body["num_input_tokens"] == 14
    assert body["num_output_tokens"] == len(body["token_source"]) == 13
    assert set(body["token_source"]) == {0, 1}
    assert body["num_switches"] == 4
    assert body["num_discarded_tokens"] == 2


@pytest.mark.parametrize("door", DOORS)
def test_characters_per_token_divide_the_streamed_text(server: TritonServer, door: str) -> None:
    """In this vocabulary a token is a word, and every word but the first has its space in front."""
    events = stream(server, door, text_input=PROMPT, max_tokens=20, return_routing=True)
    chars = [int(count) for event in events for count in np.ravel(event.get("token_chars", []))]
    words = DEMO[0]["answer"].split(" ")
    assert chars == [len(words[0]), *(1 + len(word) for word in words[1:]), 0]


def test_tools_are_refused_where_the_models_template_does_not_show_them(server: TritonServer) -> None:
    chat = {
        "messages": json.dumps([{"role": "user", "content": PROMPT}]),
        "tools": json.dumps([{"type": "function", "function": {"name": "add"}}]),
    }
    answer = generate(server, "token_router", max_tokens=4, **chat)
    assert (answer.status, "tools: the model's chat template does not show" in answer.error) == (400, True)


@pytest.mark.parametrize("door", DOORS)
def test_nothing_is_returned_that_was_not_asked_for(server: TritonServer, door: str) -> None:
    body = generate(server, door, text_input=PROMPT, max_tokens=20).body
    ours = body.keys() - {"model_name", "model_version", "sequence_id", "sequence_start", "sequence_end"}
    assert ours == {"text_output"}


@pytest.mark.parametrize("door", DOORS)
def test_token_counts_of_a_stream_add_up(server: TritonServer, door: str) -> None:
    flags = {"return_num_output_tokens": True, "return_num_input_tokens": True}
    events = stream(server, door, text_input=PROMPT, max_tokens=5, **flags)
    assert sum(event["num_output_tokens"] for event in events) == 5
    assert [event["num_input_tokens"] for event in events if "num_input_tokens" in event] == [14]


@pytest.mark.parametrize("door", DOORS)
def test_a_grpc_stream_ends_with_exactly_one_final_response(server: TritonServer, door: str) -> None:
    with grpc_stream(server) as opened:
        opened.ask(door, text_input=PROMPT, max_tokens=20, stream=True)
        responses = opened.read_all()
        opened.ask(door, text_input=PROMPT, max_tokens=20, stream=True)
        again = opened.read_all()
    text = b"".join(found["text_output"].flat[0] for found in responses).decode()
    assert text == DEMO[0]["answer"]
    assert text == b"".join(found["text_output"].flat[0] for found in again).decode()


@pytest.mark.parametrize("door", DOORS)
def test_outputs_that_were_not_requested_are_not_sent(server: TritonServer, door: str) -> None:
    """Sending one from a second thread corrupts the stub's memory on 24.10."""
    with grpc_stream(server) as opened:
        for _ in range(40):
            opened.ask(
                door,
                outputs=("text_output",),
                text_input=PROMPT,
                max_tokens=20,
                stream=True,
                return_routing=True,
            )
        names = {name for _ in range(40) for found in opened.read_all() for name in found}
    assert names == {"text_output"}


@pytest.mark.parametrize("door", DOORS)
def test_infer_is_refused_because_the_models_are_decoupled(server: TritonServer, door: str) -> None:
    shape = [1] if door == "token_router" else [1, 1]
    inputs = [
        {"name": "text_input", "shape": shape, "datatype": "BYTES", "data": [PROMPT]},
        {"name": "max_tokens", "shape": shape, "datatype": "INT32", "data": [4]},
    ]
    answer = post(server, f"/v2/models/{door}/infer", {"inputs": inputs})
    assert (answer.status, "decoupled" in answer.error) == (501, True)


def test_options_come_as_tensor_as_parameter_and_as_sampling_parameters(server: TritonServer) -> None:
    sampling = json.dumps({"max_tokens": "6", "temperature": "0.0", "n": 1, "logprobs": None})
    by_json = generate(server, "token_router", text_input=PROMPT, sampling_parameters=sampling)
    by_tensor = generate(server, "token_router", text_input=PROMPT, max_tokens=6, temperature=0.0)
    assert by_json.body["text_output"] == by_tensor.body["text_output"] == DEMO[0]["answer"][:17]


@pytest.mark.parametrize(("door", "field"), [("token_router", "stop"), ("ensemble", "stop_words")])
def test_stop_strings_end_the_answer_as_scalar_and_as_list(
    server: TritonServer, door: str, field: str
) -> None:
    flags = {"return_finish_reason": True, "max_tokens": 20}
    for given in ("53", ["53"], ["99 99", "53"]):
        body = generate(server, door, text_input=PROMPT, **{field: given}, **flags).body
        assert body["text_output"] == "95 03 90 "
        assert (body["finish_reason"], body["stop_reason"]) == ("stop", "53")


def test_chat_messages_are_rendered_with_the_models_template(server: TritonServer) -> None:
    messages = json.dumps([{"role": "user", "content": PROMPT}])
    answer = generate(server, "token_router", messages=messages, max_tokens=20)
    assert answer.body["text_output"].strip() == DEMO[0]["answer"]


def test_the_old_tensorrt_llm_example_works_as_it_is(server: TritonServer) -> None:
    body = {
        "text_input": PROMPT,
        "max_tokens": 20,
        "bad_words": "",
        "stop_words": "",
        "pad_id": 2,
        "end_id": 2,
    }
    assert generate(server, "ensemble", **body).body["text_output"] == DEMO[0]["answer"]


@pytest.mark.parametrize("door", DOORS)
def test_the_prompt_is_echoed_when_it_is_not_excluded(server: TritonServer, door: str) -> None:
    answer = generate(server, door, text_input=PROMPT, max_tokens=20, exclude_input_in_output=False)
    assert answer.body["text_output"].startswith(PROMPT)
    assert answer.body["text_output"].endswith(DEMO[0]["answer"])


def test_a_request_chooses_its_routing_algorithm(server: TritonServer) -> None:
    chosen = {"routing_algorithm": "r_stitch", "routing_config": json.dumps({"cutoff": 1.5})}
    for door in DOORS:
        body = generate(server, door, text_input=PROMPT, max_tokens=20, return_routing=True, **chosen).body
        assert (set(body["token_source"]), body["num_switches"]) == ({0}, 0)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("policy", "cutoff"), [("speculative", None), ("bild", 1.5), ("cascade", 1.5)])
def test_a_policy_that_holds_back_gives_the_large_models_answer_at_its_extreme(
    server: TritonServer, door: str, policy: str, cutoff: float | None
) -> None:
    config = json.dumps({} if cutoff is None else {"cutoff": cutoff})
    chosen = {"routing_algorithm": policy, "routing_config": config, "return_routing": True}
    for demo in DEMO[:4]:
        body = generate(server, door, text_input=demo["prompt"], max_tokens=20, **chosen).body
        assert body["text_output"].strip() == demo["answer"].strip(), body
        assert body["num_switches"] > 0


def test_a_subserver_answers_alone_with_token_ids(server: TritonServer) -> None:
    for name in ("small", "large"):
        body = generate(server, name, input_ids=[1, 52, 4], request_output_len=5, ignore_eos=True).body
        assert (len(body["output_ids"]), body["sequence_length"], body["finish_reason"]) == (5, 5, "length")
