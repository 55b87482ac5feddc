"""One request from its first byte to its end, over HTTP or gRPC, as a client hears it.

Every wait is bounded: by the moment at which the client means to leave, and by `SILENT_S`, after which a
request counts as one without an end. Says what was heard; judges nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

from tools.soaking.work import Way

SILENT_S = 75.0
"""More than the server's own limit for a request (`deployment.REQUEST_S_MAX`)."""
LOOPBACK = "127.0.0.1"
Inputs = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Place:
    """Where to ask: ports on this host, and a door."""

    http: int
    grpc: int
    door: str


@dataclass(slots=True)
class Heard:
    """What a client got. `ends` counts last words: a finish reason, a FINAL or an error."""

    text: str = ""
    ends: int = 0
    error: str = ""
    """What the server said, or how the connection broke."""
    has_left: bool = False
    is_silent: bool = False
    asked_at: float = field(default_factory=time.monotonic)
    ended_at: float = 0.0


class Left(Exception):
    """The moment came at which the client goes away."""


def ask(place: Place, way: Way, inputs: Inputs, leave_s: float | None = None) -> Heard:
    """Ask and listen to the end, or go away after `leave_s`; never raises for what the server does."""
    heard = Heard()
    patience = Patience(heard.asked_at, leave_s)
    listen = _over_grpc if way is Way.GRPC_STREAM else _over_http
    try:
        listen(place, {**inputs, "stream": way is not Way.HTTP_WHOLE}, patience, heard)
    except Left:
        heard.has_left = True
    except TimeoutError:
        heard.is_silent = True
    heard.ended_at = time.monotonic()
    return heard


class Patience:
    """How long a client may wait for the next word."""

    def __init__(
        self, began_at: float, leave_s: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._leave_at = None if leave_s is None else began_at + leave_s
        self._silent_at = began_at + SILENT_S
        self._clock = clock

    def left_s(self) -> float:
        """Seconds until the client leaves or gives up; Left or TimeoutError when that moment is over."""
        now = self._clock()
        if self._leave_at is not None and now >= self._leave_at:
            raise Left
        if now >= self._silent_at:
            raise TimeoutError
        until = self._silent_at if self._leave_at is None else min(self._leave_at, self._silent_at)
        return until - now


def _over_http(place: Place, inputs: Inputs, patience: Patience, heard: Heard) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, place.http, timeout=patience.left_s())
    verb = "generate_stream" if inputs["stream"] else "generate"
    try:
        connection.request("POST", f"/v2/models/{place.door}/{verb}", json.dumps(inputs))
        _read(connection, patience, heard)
    except TimeoutError:
        patience.left_s()
        raise
    except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
        heard.error = f"connection: {type(error).__name__}: {error}"
    finally:
        connection.close()


def _read(connection: http.client.HTTPConnection, patience: Patience, heard: Heard) -> None:
    sock = connection.sock
    sock.settimeout(patience.left_s())
    with connection.getresponse() as response:
        while line := _line(response, sock, patience):
            if line.strip():
                _take_event(json.loads(line.removeprefix(b"data: ")), heard)


def _line(response: http.client.HTTPResponse, sock: Any, patience: Patience) -> bytes:
    sock.settimeout(patience.left_s())
    return response.readline()


def _take_event(event: Mapping[str, Any], heard: Heard) -> None:
    heard.text += event.get("text_output", "")
    error = event.get("error") or event.get("error_message") or ""
    heard.error = heard.error or str(error)
    heard.ends += bool(error or event.get("finish_reason"))


def _over_grpc(place: Place, inputs: Inputs, patience: Patience, heard: Heard) -> None:
    said: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()
    with grpc.InferenceServerClient(f"{LOOPBACK}:{place.grpc}") as client:
        client.start_stream(lambda result, error: said.put((result, error)), stream_timeout=SILENT_S)
        tensors = [tensor(place.door, name, value) for name, value in inputs.items()]
        try:
            with contextlib.suppress(InferenceServerException):  # of a stream that broke: it is told below
                client.async_stream_infer(place.door, tensors, enable_empty_final_response=True)
            while not heard.ends:
                _take_response(*_next(said, patience), heard)
        finally:
            client.stop_stream(cancel_requests=not heard.ends)
    while not said.empty():
        _take_late(*said.get(), heard)


def _next(said: queue.SimpleQueue[tuple[Any, Any]], patience: Patience) -> tuple[Any, Any]:
    while True:
        try:
            return said.get(timeout=patience.left_s())
        except queue.Empty:
            continue  # patience says which of its two moments came


def _take_response(result: Any, error: Any, heard: Heard) -> None:
    if error is not None:
        heard.error, heard.ends = str(error), heard.ends + 1
        return
    for name in ("text_output", "error_message"):
        found = result.as_numpy(name)
        words = b"".join(found.ravel()).decode() if found is not None else ""
        if name == "text_output":
            heard.text += words
        else:
            heard.error = heard.error or words
    heard.ends += result.get_response().parameters["triton_final_response"].bool_param


def _take_late(result: Any, error: Any, heard: Heard) -> None:
    """Whatever comes after the end counts as another end."""
    heard.ends += 1
    heard.error = heard.error or f"after the end: {error or result.get_response()}"[:200]


def tensor(door: str, name: str, value: str | int | bool) -> Any:
    """One input; the ensemble's tensors have a row more."""
    shape = [1] if door == "token_router" else [1, 1]
    kind, wire = _wire(value)
    found = grpc.InferInput(name, shape, kind)
    found.set_data_from_numpy(wire.reshape(shape))
    return found


def _wire(value: str | int | bool) -> tuple[str, Any]:
    if isinstance(value, str):
        return "BYTES", np.array([value.encode()], dtype=object)
    return ("BOOL", np.array([value])) if isinstance(value, bool) else ("INT32", np.array([value], np.int32))
