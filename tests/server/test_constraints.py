"""What a client discourages or forbids, through both doors and at one model alone, over the demo pair."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from tests.server.clients import generate
from tests.server.test_doors import DEMO, DOORS, PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

WORDS = DEMO[0]["answer"].split()
"""One word, one token: 95 03 90 53 22 51 34 78 41 71 52 59."""
COUNTS = {"return_finish_reason": True, "return_num_output_tokens": True, "return_routing": True}


def answer(server: TritonServer, door: str, **body: object) -> dict[str, Any]:
    found = generate(server, door, text_input=PROMPT, **{"max_tokens": 20, **COUNTS, **body})
    assert found.status == 200, found
    return dict(found.body)


@pytest.mark.case("F21")
@pytest.mark.parametrize("door", DOORS)
def test_a_bad_word_and_a_pair_of_words_are_not_written(server: TritonServer, door: str) -> None:
    """The pair is cut where one model hands over to the other, too."""
    free = answer(server, door)
    assert free["text_output"].split() == WORDS
    turn = next(n for n in range(1, 12) if free["token_source"][n - 1] != free["token_source"][n])
    pair = " ".join(WORDS[turn - 1 : turn + 1])
    for bad, kept in (("53", 3), (pair, turn)):
        for given in (bad, [bad, "12 34"]):
            written = answer(server, door, bad_words=given)["text_output"].split()
            assert written[:kept] == WORDS[:kept]
            assert bad not in {*written, *map(" ".join, pairwise(written))}


@pytest.mark.case("F08")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ["min_tokens", "min_length"])
def test_an_answer_does_not_end_before_its_least_length(server: TritonServer, door: str, name: str) -> None:
    """Neither by an end token of either model nor by a stop string."""
    stop = {"stop" if door == "token_router" else "stop_words": ["53"]}
    assert answer(server, door, **stop)["num_output_tokens"] == 4
    body = answer(server, door, **{name: 20}, **stop)
    assert (body["num_output_tokens"], body["finish_reason"]) == (20, "length")
    assert body["text_output"].split()[:4] == WORDS[:4]


def test_both_doors_and_json_give_one_answer_for_one_set_of_penalties(server: TritonServer) -> None:
    penalties = {"repetition_penalty": 1.4, "presence_penalty": 2.0, "frequency_penalty": 0.5, "min_p": 0.05}
    draws = {"temperature": 1.0, "seed": 3, "ignore_eos": True, "logit_bias": '{"57": -100, "7": "5.5"}'}
    texts = {door: answer(server, door, **penalties, **draws)["text_output"] for door in DOORS}
    as_strings = {name: str(value) for name, value in {**penalties, **draws}.items()}
    written = json.dumps({**as_strings, "logit_bias": {"57": -100, "7": 5.5}})
    texts["json"] = answer(server, "token_router", sampling_parameters=written)["text_output"]
    assert len(set(texts.values())) == 1
    assert texts["json"] != answer(server, "token_router", **draws)["text_output"]
    assert "53" not in texts["json"]


def test_a_model_alone_takes_bans_as_token_ids(server: TritonServer) -> None:
    body = {"input_ids": [1, 52, 4], "request_output_len": 8, "ignore_eos": True}
    free = generate(server, "large", **body).body["output_ids"]
    banned = [[free[0], free[1]], [1, 2]]
    held = generate(server, "large", **body, bad_words_list=[*banned[0], *banned[1]]).body["output_ids"]
    assert not set(banned[0]) & set(held)
    biased = generate(server, "large", **body, logit_bias=json.dumps({"9": 100})).body["output_ids"]
    assert biased == [9] * 8
