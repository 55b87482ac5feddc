"""One Triton request as plain arrays in, plain arrays out.

Owns the request's response sender. Never sends an output that was not requested, and copies every input:
Triton's tensors are views into shared memory that is gone once `execute` returned.
"""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils

from python_backend.server.outputs import Arrays
from python_backend.server.response_stream import SendFailedError
from python_backend.server.tensors import Envelope

_STATUS = {
    "TR_INVALID_ARGUMENT": "INVALID_ARG",
    "TR_ALREADY_EXISTS": "ALREADY_EXISTS",
    "TR_CAPACITY": "UNAVAILABLE",
    "TR_PEER_LOST": "UNAVAILABLE",
    "TR_QUEUE_FULL": "UNAVAILABLE",
    "TR_DRAINING": "UNAVAILABLE",
    "TR_SHUTDOWN": "UNAVAILABLE",
    "TR_CANCELLED": "CANCELLED",
}


def input_arrays(request: Any) -> Arrays:
    return {tensor.name(): tensor.as_numpy().copy() for tensor in request.inputs()}


def envelope(request: Any) -> Envelope:
    return Envelope(request.request_id(), request.parameters(), request.timeout())


def response(arrays: Arrays, wanted: frozenset[str]) -> Any:
    tensors = [pb_utils.Tensor(name, array) for name, array in arrays.items() if name in wanted]
    return pb_utils.InferenceResponse(output_tensors=tensors)


def error_response(code: str, message: str) -> Any:
    status = getattr(pb_utils.TritonError, _STATUS.get(code, "INTERNAL"))
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, status))


def wanted_outputs(request: Any) -> frozenset[str]:
    return frozenset(request.requested_output_names())


def _final() -> int:
    # Looked up on use, like all of pb_utils: the stub completes the module after models were imported.
    return int(pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class Wire:
    """Where the responses of one decoupled request go. Only the sender thread calls it.

    SendFailedError when Triton cannot take a response, for example because /dev/shm is full.
    """

    def __init__(self, request: Any) -> None:
        self._sender = request.get_response_sender()
        self._wanted = wanted_outputs(request)

    def send(self, arrays: Arrays, is_last: bool) -> None:
        """Nothing is sent when none of `arrays` was requested, unless it is the last."""
        if is_last or not self._wanted.isdisjoint(arrays):
            self._send(response(arrays, self._wanted), _final() if is_last else 0)

    def fail(self, code: str, message: str) -> None:
        self._send(error_response(code, message), _final())

    def close(self) -> None:
        """FINAL with nothing on it."""
        self._send(None, _final())

    def is_cancelled(self) -> bool:
        return bool(self._sender.is_cancelled())

    def _send(self, answer: Any, flags: int) -> None:
        try:
            self._sender.send(answer, flags=flags)
        except pb_utils.TritonModelException as error:
            raise SendFailedError(str(error)) from error
