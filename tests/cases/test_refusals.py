"""Field cases whose right outcome is, today, a refusal that names the option."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from python_backend.server.contracts import ROUTER, TEXT, TOKENS
from python_backend.server.tensors import Envelope, reader, router_asked, text_asked, tokens_asked
from router_backend.core.errors import RequestError

READ_TEXT = reader(TEXT, text_asked)
INSIDE = {"router": reader(ROUTER, router_asked), "subserver": reader(TOKENS, tokens_asked)}
PROMPT = {"text_input": np.array([b"hi"], dtype=object)}


def one(value: int) -> Any:
    return np.array([[value]], dtype=np.int32)


@pytest.mark.case("F19")
@pytest.mark.parametrize("name", ["n", "best_of", "num_return_sequences", "beam_width"])
def test_several_answers_for_one_request_are_refused_by_name_at_the_text_door(name: str) -> None:
    with pytest.raises(RequestError, match=rf"^TR_INVALID_ARGUMENT: {name}: "):
        READ_TEXT(PROMPT, Envelope(parameters_json=json.dumps({name: 4, "seed": 7})))


@pytest.mark.case("F19")
@pytest.mark.parametrize("door", INSIDE)
@pytest.mark.parametrize("name", ["num_return_sequences", "beam_width"])
def test_several_answers_for_one_request_are_refused_by_name_behind_the_ensemble(
    door: str, name: str
) -> None:
    tensors = {"input_ids": np.array([[1]], dtype=np.int32), "request_output_len": one(2), name: one(4)}
    with pytest.raises(RequestError, match=rf"^TR_INVALID_ARGUMENT: {name}: "):
        INSIDE[door](tensors, Envelope())


@pytest.mark.case("F77")
@pytest.mark.parametrize("door", INSIDE)
@pytest.mark.parametrize("name", ["guided_decoding_guide_type", "guided_decoding_guide"])
def test_a_grammar_is_refused_by_name_behind_the_ensemble(door: str, name: str) -> None:
    tensors = {"input_ids": np.array([[1]], dtype=np.int32), "request_output_len": one(2)}
    with pytest.raises(RequestError, match=rf"^TR_INVALID_ARGUMENT: {name}: "):
        INSIDE[door](tensors, Envelope(parameters_json=json.dumps({name: "json"})))


@pytest.mark.case("F77")
@pytest.mark.parametrize("name", ["guided_json", "guided_regex", "grammar", "response_format", "json_schema"])
def test_a_grammar_is_refused_by_name(name: str) -> None:
    with pytest.raises(RequestError, match=rf"^TR_INVALID_ARGUMENT: {name}: "):
        READ_TEXT(PROMPT, Envelope(parameters_json=json.dumps({name: "{}"})))
