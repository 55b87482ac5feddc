"""Log-probabilities in the language of each door."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from python_backend.loops.base import Ask, Finish, Likely, Piece, TokenReport
from python_backend.server.contracts import ROUTER, TEXT, TOKENS
from python_backend.server.outputs import Arrays, RouterShape, TextShape, TokensShape
from python_backend.server.tensors import (
    Asked,
    Envelope,
    Returns,
    reader,
    router_asked,
    text_asked,
    tokens_asked,
)
from router_backend.core.effects import Reason

FIRST = Piece(
    "ab",
    (4, 5),
    (0, 1),
    logprobs=(
        TokenReport(Likely(4, -0.25, b"a"), (Likely(4, -0.25, b"a"), Likely(9, -2.0, b"\xf0"))),
        TokenReport(Likely(5, -3.5, b"b"), (Likely(8, -0.5, b"x"), Likely(9, -1.0, b"\xf0"))),
    ),
)
LAST = Piece("", finish=Finish(Reason.LENGTH, seed=2**63 - 1))
WISHES = Returns(logprobs=True, cumulative_logprob=True, seed=True)
TOKENS_ASKED = {"input_ids": np.array([[1]], dtype=np.int32), "request_output_len": np.array([[2]])}


def told(arrays: Arrays) -> dict[str, Any]:
    return {name: (array.dtype.name, array.tolist()) for name, array in arrays.items()}


@pytest.mark.case("F28")
def test_the_text_door_writes_them_as_tritons_vllm_backend_and_adds_the_author() -> None:
    shape = TextShape(Asked(Ask(), WISHES))
    first, last = told(shape.arrays(FIRST)), told(shape.arrays(LAST))
    (written,) = first["logprobs"][1]
    other = {"logprob": -2.0, "rank": 2, "decoded_token": "\ufffd", "bytes": [0xF0]}
    assert json.loads(written) == [
        {"4": {"logprob": -0.25, "rank": 1, "decoded_token": "a", "bytes": [97], "source": 0}, "9": other},
        {
            "5": {"logprob": -3.5, "rank": None, "decoded_token": "b", "bytes": [98], "source": 1},
            "8": {"logprob": -0.5, "rank": 1, "decoded_token": "x", "bytes": [120]},
            "9": {**other, "logprob": -1.0},
        },
    ]
    assert (first["cumulative_logprob"], first["token_source"]) == (("float32", [-3.75]), ("int32", [0, 1]))
    assert last == {
        "text_output": ("object", [b""]),
        "cumulative_logprob": ("float32", [-3.75]),
        "seed_used": ("uint64", [2**63 - 1]),
    }


@pytest.mark.case("F28")
@pytest.mark.parametrize("shape", [RouterShape, TokensShape])
def test_behind_the_ensemble_they_are_tensorrt_llms_tensors_in_one_row(
    shape: type[RouterShape | TokensShape],
) -> None:
    made = shape(Asked(Ask(), WISHES))
    first, last = told(made.arrays(FIRST)), told(made.arrays(LAST))
    names = ("output_log_probs", "top_log_prob_ids", "top_log_probs", "cum_log_probs")
    assert {name: first[name] for name in names} == {
        "output_log_probs": ("float32", [[[-0.25, -3.5]]]),
        "top_log_prob_ids": ("int32", [[[4, 9], [8, 9]]]),
        "top_log_probs": ("float32", [[[-0.25, -2.0], [-0.5, -1.0]]]),
        "cum_log_probs": ("float32", [[-3.75]]),
    }
    assert [name for name in names if name in last] == ["cum_log_probs"]


def test_without_the_wish_for_them_none_are_given() -> None:
    for shape in (TextShape, RouterShape, TokensShape):
        names = shape(Asked(Ask())).arrays(FIRST).keys() | shape(Asked(Ask())).arrays(LAST).keys()
        assert not [name for name in names if "log" in name or name == "seed_used"]


@pytest.mark.parametrize(
    ("given", "count", "returns"),
    [
        ({"logprobs": 3}, 3, Returns(logprobs=True)),
        ({"return_logprobs": True}, 0, Returns(logprobs=True)),
        ({"return_logprobs": True, "logprobs": 2}, 2, Returns(logprobs=True)),
        ({"return_cumulative_logprob": True}, 0, Returns(cumulative_logprob=True)),
        ({"return_logprobs": False, "return_seed": True}, None, Returns(seed=True)),
    ],
)
def test_the_text_door_reads_how_many_are_wanted(
    given: dict[str, object], count: int | None, returns: Returns
) -> None:
    tensors = {name: np.array([value]) for name, value in given.items()}
    asked = reader(TEXT, text_asked)({"text_input": np.array([b"hi"], dtype=object), **tensors}, Envelope())
    assert (asked.ask.logprobs, asked.returns) == (count, returns)


def test_the_count_may_come_with_the_sampling_parameters_as_in_vllm() -> None:
    tensors = {
        "text_input": np.array([b"hi"], dtype=object),
        "sampling_parameters": np.array([b'{"logprobs": "4"}'], dtype=object),
    }
    asked = reader(TEXT, text_asked)(tensors, Envelope())
    assert (asked.ask.logprobs, asked.returns.logprobs) == (4, True)


@pytest.mark.parametrize(("contract", "collect"), [(ROUTER, router_asked), (TOKENS, tokens_asked)])
def test_the_doors_behind_it_read_tensorrt_llms_flag_and_a_count(contract: Any, collect: Any) -> None:
    for given, count in (({"return_log_probs": [[True]]}, 0), ({"logprobs": [[5]]}, 5)):
        tensors = TOKENS_ASKED | {name: np.array(value) for name, value in given.items()}
        asked = reader(contract, collect)(tensors, Envelope())
        assert (asked.ask.logprobs, asked.returns) == (count, Returns(logprobs=True))
