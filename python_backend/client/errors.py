"""What can go wrong between a client and the door, as exceptions with the server's stable codes.

Knows texts and gRPC statuses only. The invariant: every failure of a request is one of these.
"""

from __future__ import annotations

import re
from typing import Any

_CODED = re.compile(r"\b(TR_[A-Z_]+): (.*)", re.DOTALL)
_REFUSALS = frozenset(("TR_INVALID_ARGUMENT", "TR_CAPACITY", "TR_CONFIG"))
_TIMEOUTS = frozenset(("TR_DEADLINE",))
_ABSENCES = frozenset(("TR_QUEUE_FULL", "TR_PEER_LOST", "TR_DRAINING", "TR_SHUTDOWN"))


class ClientError(Exception):
    """A request failed. `code` is stable (`TR_...`), `message` is for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class RequestRefused(ClientError):
    """The server cannot serve the request as it is written."""

    @property
    def field(self) -> str:
        """The option at fault, empty where the message names none."""
        found = re.match(r"([\w.\[\]]+): ", self.message)
        return found[1] if found else ""


class Unavailable(ClientError):
    """The server cannot be reached, is full, is ending, or misses a model: try again later."""


class TimedOut(ClientError):
    """The answer was not complete in time; its request was cancelled."""


def from_server(text: str) -> ClientError:
    """The exception for an error that came as a response."""
    found = _CODED.search(text)
    if found is None:
        return _uncoded(text)
    code, message = found[1], found[2]
    if code in _REFUSALS:
        return RequestRefused(code, message)
    if code in _TIMEOUTS:
        return TimedOut(code, message)
    return (Unavailable if code in _ABSENCES else ClientError)(code, message)


def from_rpc(error: Any) -> ClientError:
    """The exception for a failed call; `error` is a `grpc.RpcError`, which has `code()` and `details()`."""
    status, details = error.code().name, str(error.details() or "no details")
    if status == "DEADLINE_EXCEEDED":
        return TimedOut("TR_DEADLINE", details)
    if status == "CANCELLED":
        return ClientError("TR_CANCELLED", "the request was cancelled here")
    if status in ("UNAVAILABLE", "NOT_FOUND"):
        return Unavailable("TR_UNREACHABLE", details)
    return from_server(details)


def is_of_absence(error: Any) -> bool:
    """Whether a failed call (a `grpc.RpcError`) says that a model, or the server, is not there."""
    return isinstance(from_rpc(error), Unavailable)


def _uncoded(text: str) -> ClientError:
    """Triton's own words: about a model that is not there, or about tensors that do not fit."""
    is_absent = "unknown model" in text or "not ready" in text or "not healthy" in text
    return Unavailable("TR_UNREACHABLE", text) if is_absent else ClientError("TR_ERROR", text)
