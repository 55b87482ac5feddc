"""Requests and responses of the text door as gRPC messages of tritonclient, and back.

Pure translation: no connection, no clock. Kinds of tensors come from the door's own table.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from tritonclient.grpc import service_pb2

from python_backend.client.errors import ClientError, RequestRefused, from_server
from python_backend.client.options import Options, Prompt, Scalar, tensors
from python_backend.client.results import Chunk, Description, Ending, Likely, TokenReport
from python_backend.server.contracts import TEXT

FINAL = "triton_final_response"
EMPTY_FINAL = "triton_enable_empty_final_response"
GRACE_S = 5.0
"""The server is told the time limit and says so itself; the connection's own limit lies behind it."""
_FORMATS = {"BOOL": "?", "INT32": "i", "UINT32": "I", "UINT64": "Q", "FP32": "f"}


def request(model: str, prompt: Prompt, options: Options, is_streaming: bool) -> Any:
    """A `ModelInferRequest`; RequestRefused for a value that fits no tensor."""
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, value in tensors(prompt, options, is_streaming).items():
        _add_input(message, name, value)
    message.parameters[EMPTY_FINAL].bool_param = True
    if options.timeout_s is not None:
        message.parameters["timeout"].int64_param = max(1, round(options.timeout_s * 1e6))
    return message


def _add_input(message: Any, name: str, value: Scalar | tuple[str, ...]) -> None:
    spec = TEXT.input(name)
    assert spec is not None, name
    items = value if isinstance(value, tuple) else (value,)
    kind = "BYTES" if spec.kind == "STRING" else spec.kind
    message.inputs.add(name=name, datatype=kind, shape=[len(items)])
    message.raw_input_contents.append(b"".join(_packed(name, kind, item) for item in items))


def _packed(name: str, kind: str, item: Scalar) -> bytes:
    try:
        if kind == "BYTES":
            data = str(item).encode()
            return struct.pack("<I", len(data)) + data
        return struct.pack(f"<{_FORMATS[kind]}", item)
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise RequestRefused("TR_INVALID_ARGUMENT", f"{name}: {item!r} is no {kind}: {error}") from error


def chunk(message: Any) -> tuple[Chunk, bool]:
    """(what came, is it the last) of a `ModelStreamInferResponse`; ClientError where it is an error."""
    if message.error_message:
        raise from_server(message.error_message)
    response = message.infer_response
    outputs = {
        output.name: _unpacked(output.datatype, raw)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }
    return _chunk(outputs), bool(response.parameters[FINAL].bool_param)


def _chunk(outputs: Mapping[str, tuple[Any, ...]]) -> Chunk:
    reason = _first(outputs, "finish_reason", "")
    if reason == "error":
        raise ClientError("TR_ERROR", "the request failed")
    ending = Ending(
        reason,
        _first(outputs, "stop_reason", ""),
        _first(outputs, "num_switches", 0),
        _first(outputs, "num_discarded_tokens", 0),
        _first(outputs, "seed_used", 0),
    )
    return Chunk(
        _first(outputs, "text_output", ""),
        outputs.get("token_source", ()),
        outputs.get("token_chars", ()),
        _first(outputs, "num_input_tokens", 0),
        ending if reason else None,
        tuple(_report(told) for told in json.loads(_first(outputs, "logprobs", "[]"))),
    )


def _report(told: dict[str, dict[str, Any]]) -> TokenReport:
    """The written token comes first; it has no rank where it is not among the likeliest."""
    candidates = list(told.values())
    ranked = sorted((one for one in candidates if one["rank"] is not None), key=lambda one: one["rank"])
    return TokenReport(_likely(candidates[0]), tuple(map(_likely, ranked)))


def _likely(told: dict[str, Any]) -> Likely:
    return Likely(told["decoded_token"], bytes(told["bytes"]), told["logprob"])


def _first(outputs: Mapping[str, tuple[Any, ...]], name: str, default: Any) -> Any:
    found = outputs.get(name, ())
    return found[0] if found else default


def _unpacked(kind: str, raw: bytes) -> tuple[Any, ...]:
    if kind != "BYTES":
        form = _FORMATS[kind]
        return struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw)
    found, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        found.append(raw[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return tuple(found)


def description(config: Any) -> Description:
    """From a `ModelConfigResponse` of the text door."""
    told = {name: value.string_value for name, value in config.config.parameters.items()}
    bounds = [float(bound) for bound in told.get("cutoff_range", "").split(",") if bound]
    models = tuple(name for name in told.get("models", "").split(",") if name)
    groups = tuple(tuple(group.split(",")) for group in told.get("replicas", "").split(";") if group)
    return Description(
        models,
        told.get("policy", ""),
        float(told["cutoff"]) if told.get("cutoff") else None,
        (bounds[0], bounds[1]) if len(bounds) == 2 else None,
        groups or tuple((name,) for name in models),
    )
