"""What one model's own door accepts, and how it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from python_backend.loops.base import Ask
from python_backend.loops.token_request import TokenDoor, timeout_s, to_request
from python_backend.runner.base import RunnerInfo
from router_backend.core.errors import RequestError
from router_backend.core.request import PolicySpec, Request, RequestId, Sampling

INFO = RunnerInfo(vocab_size=100, length_max=64, num_blocks=8, block_size=16, eos_ids=frozenset({99}))
DOOR = TokenDoor("large", 0xAB, INFO, tokens_max=64, max_tokens_default=16, timeout_s=600.0)
ASK = Ask(input_ids=(1, 2, 3))


def test_a_bare_ask_is_greedy_never_routed_and_starts_at_this_model() -> None:
    assert to_request(ASK, DOOR, 7) == Request(
        RequestId("large-ab-7"),
        (1, 2, 3),
        16,
        home="large",
        epoch=7,
        sampling=Sampling(seed=0xAB + 7),
        policy=PolicySpec("fixed", (("entry", "large"), ("mode", "never"))),
        stop_ids=frozenset({99}),
    )


def test_what_the_client_says_is_kept() -> None:
    ask = replace(ASK, max_tokens=61, temperature=0.7, top_k=5, top_p=0.9, seed=3, policy="fixed")
    request = to_request(replace(ask, ignore_eos=True), DOOR, 0)

    assert (request.max_tokens, request.sampling, request.stop_ids) == (
        61,
        Sampling(0.7, 5, 0.9, 3),
        frozenset(),
    )


def test_penalties_and_bans_are_kept_by_the_rules_of_the_text_doors() -> None:
    ask = replace(ASK, min_p=0.1, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=-0.5)
    ask = replace(ask, seed=3)
    request = to_request(replace(ask, min_tokens=16, logit_bias=((9, 1.0),), bad_ids=((4, 5),)), DOOR, 0)

    assert request.sampling == Sampling(
        0.0, 0, 1.0, 3, 0.1, 1.5, 0.5, -0.5, ((9, 1.0),), ((4, 5),), min_tokens=16
    )


def test_the_default_length_is_cut_to_the_room_that_is_left() -> None:
    assert to_request(Ask(input_ids=(1,) * 60), DOOR, 0).max_tokens == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": None}, "input_ids: at least one"),
        ({"input_ids": ()}, "input_ids: at least one"),
        ({"input_ids": (1, 100)}, "input_ids: 100 is outside the vocabulary 0..99"),
        ({"input_ids": (-1, 5)}, "input_ids: -1 is outside"),
        ({"input_ids": (1,) * 64}, "input_ids: 64 tokens leave no room"),
        ({"text": "hello"}, "text_input: this model takes input_ids"),
        ({"messages": ()}, "text_input: this model takes input_ids"),
        ({"stop": ("x",)}, "stop: stop strings need text"),
        ({"is_echoing": True}, "exclude_input_in_output: "),
        ({"bad_words": ("x",)}, "bad_words: words need text; send token ids as bad_words_list"),
        ({"bad_ids": ((1, 100),)}, "bad_words_list: 100 is no token id: use 0..99"),
        ({"logit_bias": ((100, 1.0),)}, "logit_bias: 100 is no token id: use 0..99"),
        ({"min_tokens": 17}, "min_tokens: 17 must be from 0 (off) to max_tokens, which is 16"),
        ({"presence_penalty": 3.0}, "presence_penalty: 3.0"),
        ({"policy": "r_stitch"}, "policy: a model that is called directly"),
        ({"policy_params": {"mode": "always"}}, "policy: a model that is called directly"),
        ({"max_tokens": 0}, "max_tokens: 0 must be from 1 to 61"),
        ({"max_tokens": 62}, "max_tokens: 62 must be from 1 to 61"),
        ({"temperature": math.nan}, "temperature: nan"),
        ({"temperature": math.inf}, "temperature: inf"),
        ({"temperature": -0.1}, "temperature: -0.1"),
        ({"top_p": 0.0}, "top_p: 0.0"),
        ({"top_p": math.nan}, "top_p: nan"),
        ({"top_k": -2}, "top_k: -2"),
        ({"seed": -1}, "seed: -1"),
        ({"seed": 2**63}, "seed: 9223372036854775808"),
    ],
)
def test_a_refusal_names_the_field(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        to_request(replace(ASK, **changes), DOOR, 0)

    assert str(caught.value).startswith(f"TR_INVALID_ARGUMENT: {message}")


def test_a_client_may_shorten_the_time_limit_but_not_lengthen_it() -> None:
    limits = [timeout_s(replace(ASK, timeout_s=limit), DOOR) for limit in (None, 5.0, 9999.0)]

    assert limits == [600.0, 5.0, 600.0]


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_a_time_limit_that_is_none_is_refused(limit: float) -> None:
    with pytest.raises(RequestError, match=r"timeout_s: "):
        timeout_s(replace(ASK, timeout_s=limit), DOOR)
