"""The server tests as clients: HTTP `generate` and `generate_stream`, gRPC streams, the metrics page."""

from __future__ import annotations

import http.client
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import tritonclient.grpc as grpc

from python_backend.metric_catalogue import metric_of
from tools.metrics_page import Sample, samples_in, total
from tools.triton_server import LOOPBACK, TritonServer

WAIT_S = 20.0
SETTLED_S = 1.5
"""Longer than the mirror behind the metrics page takes under load."""
LOOK_S = 0.02
"""Between two looks at a server: without it the one who waits takes a core from the one who is waited for."""
Seen = TypeVar("Seen")
DTYPES = {str: "BYTES", bool: "BOOL", int: "INT32", float: "FP32", np.uint64: "UINT64"}
ARRAYS = {"BYTES": object, "BOOL": bool, "INT32": np.int32, "FP32": np.float32, "UINT64": np.uint64}


@dataclass(frozen=True)
class Answer:
    status: int
    body: dict[str, Any]

    @property
    def error(self) -> str:
        return str(self.body.get("error", ""))


def post(server: TritonServer, path: str, body: object) -> Answer:
    connection = http.client.HTTPConnection(LOOPBACK, server.ports.http, timeout=WAIT_S)
    try:
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        text = answer.read().decode().removeprefix("data: ")
        return Answer(answer.status, json.loads(text or "{}"))
    finally:
        connection.close()


def generate(server: TritonServer, model: str, **body: object) -> Answer:
    return post(server, f"/v2/models/{model}/generate", body)


@contextmanager
def sse(
    server: TritonServer, model: str, wait_s: float = WAIT_S, **body: object
) -> Iterator[Iterator[dict[str, Any]]]:
    """Events of `generate_stream` as they come, at most `wait_s` apart; leaving the block closes the
    connection."""
    connection = http.client.HTTPConnection(LOOPBACK, server.ports.http, timeout=wait_s)
    try:
        connection.request(
            "POST", f"/v2/models/{model}/generate_stream", json.dumps({"stream": True, **body})
        )
        answer = connection.getresponse()
        yield (json.loads(line[6:]) for line in answer if line.startswith(b"data: "))
    finally:
        connection.close()


def stream(server: TritonServer, model: str, **body: object) -> list[dict[str, Any]]:
    with sse(server, model, **body) as events:
        return list(events)


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text_output"] for event in events)


@dataclass
class GrpcStream:
    """One bidirectional stream; `read` gives (outputs or error text, is it final) per response."""

    client: Any
    responses: queue.Queue[tuple[Any, Any]] = field(default_factory=queue.Queue)

    def ask(
        self, model: str, *, outputs: tuple[str, ...] = (), request_id: str = "", **inputs: object
    ) -> None:
        shape = [1] if model in ("token_router", "fake_text") else [1, 1]
        wanted = [grpc.InferRequestedOutput(name) for name in outputs] or None
        self.client.async_stream_infer(
            model,
            [_tensor(name, shape, value) for name, value in inputs.items()],
            outputs=wanted,
            request_id=request_id,
            enable_empty_final_response=True,
        )

    def read(self) -> tuple[dict[str, Any] | str, bool]:
        result, error = self.responses.get(timeout=WAIT_S)
        if error is not None:
            return str(error), True
        response = result.get_response()
        found = {output.name: result.as_numpy(output.name) for output in response.outputs}
        return found, response.parameters["triton_final_response"].bool_param

    def read_all(self) -> list[dict[str, Any] | str]:
        found, is_final = self.read()
        everything = [found]
        while not is_final:
            found, is_final = self.read()
            everything.append(found)
        return everything

    def cancel(self) -> None:
        self.client.stop_stream(cancel_requests=True)


@contextmanager
def grpc_stream(server: TritonServer) -> Iterator[GrpcStream]:
    with grpc.InferenceServerClient(server.grpc_address) as client:
        opened = GrpcStream(client)
        client.start_stream(lambda result, error: opened.responses.put((result, error)))
        yield opened
        client.stop_stream(cancel_requests=True)


def _tensor(name: str, shape: list[int], value: object) -> Any:
    kind = DTYPES[type(value)]
    tensor = grpc.InferInput(name, shape, kind)
    array = np.array([value.encode()], dtype=object) if isinstance(value, str) else np.array([value])
    wire = array.astype(ARRAYS[kind])
    tensor.set_data_from_numpy(wire.reshape(shape))
    return tensor


def metric(server: TritonServer, name: str, **labels: str) -> float:
    """Sum of the samples of `name` that carry these labels."""
    connection = http.client.HTTPConnection(LOOPBACK, server.ports.metrics, timeout=WAIT_S)
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    finally:
        connection.close()
    return asked_of(samples_in(page), name.removeprefix("token_router_"), **labels)


def asked_of(samples: Sequence[Sample], name: str, **labels: str) -> float:
    """The sum, 0 before the first sample; AssertionError for a name that nobody exports and for a label that
    no sample of it carries: such a sum is 0 whatever the server does."""
    assert metric_of(name) or name.startswith("fake_"), f"nobody exports {name}"
    carried = [one.labels.keys() for one in samples if one.name == name]
    assert not carried or any(labels.keys() <= names for names in carried), (name, labels, carried[0])
    return total(samples, name, **labels)


def held(server: TritonServer) -> float:
    """Requests and KV blocks that any process still keeps for somebody."""
    names, owners = ("live_requests", "live", "requests"), ("running", "parked")
    requests = sum(metric(server, f"token_router_{name}") for name in names)
    return requests + sum(metric(server, "token_router_kv_blocks", owner=owner) for owner in owners)


def eventually(holds: Callable[[], bool], within_s: float = WAIT_S) -> bool:
    """True as soon as `holds()`; False when it never did."""
    until, pause = time.monotonic() + within_s, threading.Event()
    while time.monotonic() < until:
        if holds():
            return True
        pause.wait(LOOK_S)
    return False


def settled(read: Callable[[], Seen], for_s: float = SETTLED_S) -> Seen:
    """What `read()` gives once it has stayed the same for `for_s`.

    The metrics page is a mirror that is brought up to date every second at least: a gauge that reads zero
    may be older than the last request.
    """
    seen, since = read(), time.monotonic()
    until, pause = since + WAIT_S, threading.Event()
    while time.monotonic() < min(since + for_s, until):
        pause.wait(LOOK_S)
        now = read()
        if now != seen:
            seen, since = now, time.monotonic()
    return seen
