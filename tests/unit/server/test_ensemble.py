"""The steps that answer one request with one response, and never with a traceback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from python_backend.server.contracts import PREPROCESSING
from python_backend.server.ensemble import answer, is_cancelled, read_values
from router_backend.core.errors import RequestError
from tests.fake_pb_utils import InferenceRequest, TritonError

QUERY = {"QUERY": np.array([[b"hi"]], dtype=object), "REQUEST_OUTPUT_LEN": np.array([[3]], dtype=np.int32)}


def test_a_step_answers_with_what_was_requested() -> None:
    request = InferenceRequest({}, outputs=("A",))
    assert answer(request, lambda _: {"A": np.array([1]), "B": np.array([2])}).values() == {"A": [1]}


def test_what_a_step_raises_is_its_error_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: Any) -> Any:
        raise RequestError("text_input: empty")

    def stumble(_: Any) -> Any:
        raise KeyError("a secret")

    assert answer(InferenceRequest({}), refuse).error == TritonError(
        "TR_INVALID_ARGUMENT: text_input: empty", TritonError.INVALID_ARG
    )
    error = answer(InferenceRequest({}), stumble).error
    assert (error.code, "secret" in error.message) == (TritonError.INTERNAL, False)
    assert "a secret" in caplog.text


def test_values_of_a_step_are_read_by_its_contract() -> None:
    values = read_values(PREPROCESSING, InferenceRequest(QUERY, parameters_json='{"id": "x"}'))
    assert values == {"QUERY": "hi", "REQUEST_OUTPUT_LEN": 3}
    with pytest.raises(RequestError, match="foo: unknown or unsupported request parameter"):
        read_values(PREPROCESSING, InferenceRequest(QUERY, parameters_json='{"foo": 1}'))


def test_cancellation_is_asked_of_the_request() -> None:
    assert [is_cancelled(InferenceRequest({}, cancelled=gone)) for gone in (True, False)] == [True, False]
