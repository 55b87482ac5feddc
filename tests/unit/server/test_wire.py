"""What crosses into Triton: copies in, requested outputs out, errors with a status."""

from __future__ import annotations

import numpy as np
import pytest

from python_backend.server.response_stream import SendFailedError
from python_backend.server.tensors import Envelope
from python_backend.server.wire import Wire, envelope, error_response, input_arrays, wanted_outputs
from tests.fake_pb_utils import InferenceRequest, ResponseSender, TritonError

TEXT = {"text": np.array([[b"a"]], dtype=object), "count": np.array([1])}


def test_inputs_are_copied_out_of_shared_memory() -> None:
    shared = np.array([1, 2])
    copied = input_arrays(InferenceRequest({"ids": shared}))
    shared[:] = 0
    assert copied["ids"].tolist() == [1, 2]


def test_the_envelope_is_id_parameters_and_timeout() -> None:
    request = InferenceRequest({}, id="me", parameters_json='{"a": 1}', timeout_us=5, outputs=("x",))
    assert envelope(request) == Envelope("me", '{"a": 1}', 5)
    assert wanted_outputs(request) == {"x"}


def test_only_requested_outputs_are_sent() -> None:
    request = InferenceRequest({}, outputs=("text",))
    wire = Wire(request)
    wire.send(TEXT, is_last=False)
    wire.send({"count": TEXT["count"]}, is_last=False)
    wire.send(TEXT, is_last=True)
    assert [(r.values(), flags) for r, flags in request.sender.sent if r] == [
        ({"text": [[b"a"]]}, 0),
        ({"text": [[b"a"]]}, 1),
    ]


def test_the_last_response_is_sent_though_nothing_on_it_was_requested() -> None:
    request = InferenceRequest({}, outputs=("other",))
    Wire(request).send(TEXT, is_last=True)
    assert [(r.values(), flags) for r, flags in request.sender.sent if r] == [({}, 1)]


def test_an_error_and_a_close_are_final() -> None:
    failed, closed = InferenceRequest({}), InferenceRequest({})
    Wire(failed).fail("TR_CAPACITY", "full")
    Wire(closed).close()
    assert failed.sender.sent == [(error_response("TR_CAPACITY", "full"), 1)]
    assert closed.sender.sent == [(None, 1)]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("TR_INVALID_ARGUMENT", TritonError.INVALID_ARG),
        ("TR_QUEUE_FULL", TritonError.UNAVAILABLE),
        ("TR_ALREADY_EXISTS", TritonError.ALREADY_EXISTS),
        ("TR_CANCELLED", TritonError.CANCELLED),
        ("TR_ANYTHING", TritonError.INTERNAL),
    ],
)
def test_our_codes_have_a_triton_status(code: str, status: int) -> None:
    assert error_response(code, "why").error == TritonError("why", status)


def test_a_response_that_triton_does_not_take_is_our_error() -> None:
    request = InferenceRequest({}, outputs=("text",), sender=ResponseSender(failures=["shm is full"]))
    with pytest.raises(SendFailedError, match="TR_SEND: shm is full"):
        Wire(request).send(TEXT, is_last=False)


def test_cancellation_is_asked_of_the_sender() -> None:
    assert Wire(InferenceRequest({}, sender=ResponseSender(cancelled=True))).is_cancelled()
