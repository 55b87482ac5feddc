"""Errors in OpenAI's shape, with the HTTP status that its clients act upon.

Pure data and one table. The invariant: every error of this server has type, param, code and message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Response
from pydantic import BaseModel

from python_backend.client import ClientError, RequestRefused, TimedOut, Unavailable

PARAMS = {
    "text_input": "prompt",
    "policy": "x_router.policy",
    "routing_config": "x_router.params",
}
"""Fields that have another name at the door."""
TYPES = {401: "authentication_error", 429: "rate_limit_error"}
FULL = frozenset(("TR_QUEUE_FULL",))
CODES = {"missing": "missing_required_parameter", "extra_forbidden": "unknown_parameter"}
"""Codes of what pydantic finds; everything else is an invalid value."""
NESTED = frozenset(("x_router", "stream_options", "response_format"))
PLACES = frozenset(("body", "path", "query", "header"))


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """What every status from 400 on has as its body."""

    error: ErrorDetail


class ApiError(Exception):
    """Ends a request with `status`."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        kind = TYPES.get(self.status, kind)
        detail = ErrorDetail(message=self.message, type=kind, param=self.param, code=self.code)
        return {"error": detail.model_dump()}

    def response(self) -> Response:
        # ASCII: a message may quote half a surrogate pair, which no UTF-8 can hold
        return Response(
            json.dumps(self.body()), self.status, headers=self._headers(), media_type="application/json"
        )

    def _headers(self) -> Mapping[str, str]:
        if self.status in (429, 503):
            return {"Retry-After": "1"}
        # an answer that took too long would take as long again
        return {"x-should-retry": "false"} if self.status == 504 else {}


def of_client(error: ClientError) -> ApiError:
    """What the door said, for an HTTP client."""
    if isinstance(error, RequestRefused):
        return _refusal(error)
    if isinstance(error, TimedOut):
        return ApiError(504, error.code, error.message)
    if isinstance(error, Unavailable):
        return ApiError(429 if error.code in FULL else 503, error.code, error.message)
    return ApiError(500, error.code, error.message)


def _refusal(error: RequestRefused) -> ApiError:
    """With the names that the client used."""
    param = PARAMS.get(error.field, error.field)
    rest = error.message.removeprefix(error.field)
    return ApiError(400, error.code, f"{param}{rest}", param or None)


def of_validation(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first thing that is wrong with a body."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "invalid_json", f"the body is not JSON: {first['ctx']['error']}")
    where = [str(part) for part in first["loc"] if part not in PLACES]
    message = str(first["msg"]).removeprefix("Value error, ")
    if not where:  # one of our own checks, which name their field
        where, message = [message.partition(": ")[0]], message.partition(": ")[2] or message
    # behind a field may stand the branches of a union, which mean nothing to a client
    param = ".".join(where[: 2 if where[0] in NESTED else 1])
    return ApiError(400, CODES.get(first["type"], "invalid_value"), f"{param}: {message}", param)
