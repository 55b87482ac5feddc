"""A gRPC server that answers as the text door of Triton does, from a script."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from python_backend.client.wire import FINAL

FORMATS = {"INT32": "i", "UINT32": "I", "UINT64": "Q"}
KINDS = {"num_input_tokens": "UINT32", "seed_used": "UINT64"}
TOLD = {"models": "small,large", "policy": "r_stitch", "cutoff": "0.2", "cutoff_range": "0.0,1.0"}


def reply(is_last: bool = False, **outputs: Any) -> Any:
    """A response with these outputs; a text is a BYTES tensor, numbers are INT32."""
    message = service_pb2.ModelStreamInferResponse()
    for name, value in outputs.items():
        kind = "BYTES" if isinstance(value, str) else KINDS.get(name, "INT32")
        items = value if isinstance(value, list) else [value]
        message.infer_response.outputs.add(name=name, datatype=kind, shape=[len(items)])
        message.infer_response.raw_output_contents.append(b"".join(_raw(kind, item) for item in items))
    message.infer_response.parameters[FINAL].bool_param = is_last
    return message


def _raw(kind: str, item: Any) -> bytes:
    if kind == "BYTES":
        return struct.pack("<I", len(item.encode())) + item.encode()
    return struct.pack(f"<{FORMATS[kind]}", item)


def refusal(text: str) -> Any:
    return service_pb2.ModelStreamInferResponse(error_message=text)


ANSWER = (
    reply(text_output="ab", token_source=[0, 1], token_chars=[1, 1], num_input_tokens=3),
    reply(text_output="", token_source=[1], token_chars=[2]),
    reply(
        is_last=True,
        text_output="cd",
        token_source=[0],
        token_chars=[0],
        finish_reason="stop",
        stop_reason="x",
        num_switches=2,
        num_discarded_tokens=1,
        seed_used=11,
    ),
)

LIKELY = (
    reply(
        is_last=True,
        text_output="ab",
        token_source=[0, 1],
        token_chars=[1, 1],
        num_input_tokens=3,
        finish_reason="length",
        logprobs=json.dumps(
            [
                {
                    "7": {"logprob": -2.0, "rank": None, "decoded_token": "a", "bytes": [97], "source": 0},
                    "8": {"logprob": -0.5, "rank": 1, "decoded_token": "x", "bytes": [120]},
                },
                {
                    "9": {
                        "logprob": float("-inf"),
                        "rank": 1,
                        "decoded_token": "b",
                        "bytes": [98],
                        "source": 1,
                    }
                },
            ]
        ),
    ),
)


@dataclass
class ScriptedDoor(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Gives `answer` to every request; waits for a cancel after it if `is_endless`."""

    answer: tuple[Any, ...] = ANSWER
    is_endless: bool = False
    loaded: tuple[str, ...] = ("token_router", "small", "large")
    replicas: str = ""
    readiness: tuple[grpc.StatusCode, str] | None = None
    """How asking for a model that is not loaded fails; None = it is told so."""
    requests: list[Any] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def ModelStreamInfer(self, request_iterator: Any, context: Any) -> Iterator[Any]:
        context.add_callback(self.cancelled.set)
        for request in request_iterator:
            self.requests.append(request)
            yield from self.answer
            if self.is_endless:
                self.cancelled.wait(20)

    def ModelConfig(self, request: Any, context: Any) -> Any:
        found = service_pb2.ModelConfigResponse()
        for name, value in {**TOLD, "replicas": self.replicas}.items():
            found.config.parameters[name].string_value = value
        return found

    def ModelReady(self, request: Any, context: Any) -> Any:
        if self.readiness and request.name not in self.loaded:
            context.abort(*self.readiness)
        return service_pb2.ModelReadyResponse(ready=request.name in self.loaded)

    def asked(self) -> dict[str, bytes]:
        """Raw inputs of the last request by name."""
        request = self.requests[-1]
        return {
            tensor.name: raw for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }


@contextmanager
def opened(door: ScriptedDoor) -> Iterator[str]:
    """The address at which `door` answers."""
    server = grpc.server(ThreadPoolExecutor(8))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(door, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()
