"""Log-probabilities and seeds through both doors of a real Triton."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.server.clients import generate, grpc_stream, stream
from tests.server.test_doors import DEMO, DOORS, PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

CLOSE = 1e-3
"""Of float32 sums: who finds the prompt in the cache adds up in another order."""
WARM = {"text_input": PROMPT, "max_tokens": 12, "temperature": 0.9, "seed": 11, "ignore_eos": True}


def listed(event: dict[str, Any], name: str) -> list[Any]:
    """JSON of a tensor with one element is that element."""
    value = event.get(name, [])
    return value if isinstance(value, list) else [value]


def entries(event: dict[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(event["logprobs"])) if "logprobs" in event else []


def figures(told: list[dict[str, Any]]) -> list[float]:
    return [likely["logprob"] for one in told for likely in one.values()]


def ranked(one: dict[str, Any]) -> list[int]:
    """Token ids of the likeliest, best first."""
    return [
        int(token) for _, token in sorted((one[token]["rank"], token) for token in one if one[token]["rank"])
    ]


@pytest.mark.case("F28")
def test_the_text_door_reports_as_many_as_tokens_and_the_same_streamed(server: TritonServer) -> None:
    wish = {"logprobs": 3, "return_cumulative_logprob": True, "return_num_output_tokens": True}
    whole = generate(server, "token_router", **WARM, **wish).body
    events = stream(server, "token_router", **WARM, **wish)

    assert [len(entries(event)) for event in events] == [event["num_output_tokens"] for event in events]
    told = entries(whole)
    streamed = [one for event in events for one in entries(event)]
    assert [list(one) for one in streamed] == [list(one) for one in told] and len(told) == 12
    assert figures(streamed) == pytest.approx(figures(told), abs=CLOSE)
    written = [next(iter(one.values())) for one in told]
    assert [one["decoded_token"] for one in written] == whole["text_output"].split()
    assert [one["source"] for one in written] == listed(whole, "token_source")
    total = math.fsum(one["logprob"] for one in written)
    assert events[-1]["cumulative_logprob"] == pytest.approx(total, abs=CLOSE)
    assert whole["cumulative_logprob"] == pytest.approx(total, abs=CLOSE)


@pytest.mark.case("F28")
def test_the_ensemble_reports_in_tensorrt_llms_tensors_what_the_text_door_says(server: TritonServer) -> None:
    names = ("output_log_probs", "top_log_prob_ids", "top_log_probs", "cum_log_probs", "token_source")
    with grpc_stream(server) as opened:
        opened.ask("ensemble", outputs=names, stream=True, logprobs=3, **{**WARM, "seed": np.uint64(11)})
        responses = [found for found in opened.read_all() if isinstance(found, dict)]
    joined = {
        name: np.concatenate([found[name] for found in responses if name in found], axis=axis)
        for name, axis in zip(names, (2, 1, 1, 1, 1), strict=True)
    }
    told = entries(generate(server, "token_router", **WARM, logprobs=3).body)
    own = [next(iter(one.values())) for one in told]
    assert joined["output_log_probs"].shape == (1, 1, 12)
    values = [one["logprob"] for one in own]
    assert joined["output_log_probs"].ravel().tolist() == pytest.approx(values, abs=CLOSE)
    assert joined["top_log_prob_ids"][0].tolist() == [ranked(each) for each in told]
    assert joined["token_source"].ravel().tolist() == [one["source"] for one in own]
    assert joined["cum_log_probs"].ravel()[-1] == pytest.approx(sum(values), abs=CLOSE)


@pytest.mark.case("F28")
@pytest.mark.parametrize(("door", "stop"), [("token_router", "stop"), ("ensemble", "stop_words")])
def test_a_stop_string_cuts_counts_and_log_probabilities_alike(
    server: TritonServer, door: str, stop: str
) -> None:
    wish = {"logprobs": 0, "return_num_output_tokens": True, stop: "53"}
    body = generate(server, door, text_input=PROMPT, max_tokens=20, **wish).body
    told = entries(body) if door == "token_router" else listed(body, "output_log_probs")
    assert len(told) == body["num_output_tokens"] == len(listed(body, "token_source")) > 0


def test_a_subserver_alone_reports_them_too(server: TritonServer) -> None:
    ask = {"input_ids": [1, 52, 4], "request_output_len": 5, "ignore_eos": True, "logprobs": 1}
    body = generate(server, "large", **ask).body
    names = ("output_log_probs", "top_log_probs", "top_log_prob_ids")
    assert [len(listed(body, name)) for name in names] == [len(body["output_ids"])] * 3
    assert body["output_log_probs"] == pytest.approx(body["top_log_probs"])


@pytest.mark.parametrize("door", DOORS)
def test_too_many_are_refused_by_name(server: TritonServer, door: str) -> None:
    answer = generate(server, door, text_input=PROMPT, max_tokens=2, logprobs=21)
    assert (answer.status, "logprobs: 21 must be from 0 to 20" in answer.error) == (400, True)


@pytest.mark.parametrize("door", DOORS)
def test_the_reported_seed_repeats_a_sampled_answer(server: TritonServer, door: str) -> None:
    wish = {"text_input": DEMO[1]["prompt"], "max_tokens": 24, "temperature": 1.8, "ignore_eos": True}
    first = generate(server, door, **wish, return_seed=True).body
    streamed = stream(server, door, **wish, return_seed=True, seed=first["seed_used"])
    other = generate(server, door, **wish, return_seed=True).body

    assert "".join(event["text_output"] for event in streamed) == first["text_output"]
    assert [event["seed_used"] for event in streamed if "seed_used" in event] == [first["seed_used"]]
    assert (other["seed_used"], other["text_output"]) != (first["seed_used"], first["text_output"])
