"""What a person reads once the server is ready: addresses, and four examples to paste.

Pure text. The examples use the ports that are in use and nothing that `make setup` did not install.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the server listens; `grpc` without a scheme; `openai` without /v1, empty if it is not served."""

    http: str
    grpc: str
    metrics: str
    openai: str


HEADER = "-H 'Content-Type: application/json' "
GRPC_EXAMPLE = """\
{python} - <<'EOF'
import queue
import numpy as np
import tritonclient.grpc as triton

def tensor(name, values, kind):
    found = triton.InferInput(name, [len(values)], kind)
    found.set_data_from_numpy(np.array(values, dtype=triton.triton_to_np_dtype(kind)))
    return found

inputs = [
    tensor("text_input", [{prompt}], "BYTES"),
    tensor("stream", [True], "BOOL"),
    tensor("max_tokens", [64], "INT32"),
]
answers = queue.Queue()
with triton.InferenceServerClient("{grpc}") as client:
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("token_router", inputs, enable_empty_final_response=True)
    while True:
        result, error = answers.get(timeout=60)
        if error is not None:
            raise SystemExit(error)
        text = result.as_numpy("text_output")
        print(text[0].decode() if text is not None else "", end="", flush=True)
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
print()
EOF"""


def examples(addresses: Addresses, prompt: str, python: str) -> list[tuple[str, str]]:
    """Title and command of each example; `python` is the interpreter that has tritonclient."""
    whole = {"text_input": prompt, "max_tokens": 64, "return_routing": True}
    streamed = {"text_input": prompt, "max_tokens": 64, "stream": True}
    chat = {"model": "token_router", "messages": [{"role": "user", "content": prompt}]}
    door = f"{addresses.http}/v2/models/token_router"
    ensemble = f"{addresses.http}/v2/models/ensemble"
    found = [
        ("one answer, with the model that wrote each token", _curl(f"{door}/generate", whole)),
        ("the same as a stream, through the ensemble", _curl(f"{ensemble}/generate_stream", streamed, "-N ")),
        (
            "gRPC streaming from Python",
            GRPC_EXAMPLE.format(python=python, grpc=addresses.grpc, prompt=json.dumps(prompt)),
        ),
    ]
    chatting = (
        "a chat as OpenAI's clients send it",
        _curl(f"{addresses.openai}/v1/chat/completions", chat, HEADER),
    )
    return [*found, chatting] if addresses.openai else found


def _openai(url: str) -> list[str]:
    return [f"  OpenAI   {url}/v1", f"  try it   {url}/"] if url else []


def announcement(addresses: Addresses, shown: Sequence[tuple[str, str]], log: str) -> str:
    """Everything that is printed when the server is ready."""
    lines = [
        "",
        "Ready.",
        f"  HTTP     {addresses.http}",
        f"  gRPC     {addresses.grpc}",
        f"  metrics  {addresses.metrics}",
        *_openai(addresses.openai),
        f"  log      {log}",
    ]
    for title, command in shown:
        lines += ["", f"# {title}", command]
    return "\n".join([*lines, "", "Ctrl-C stops the server."])


def _curl(url: str, body: Mapping[str, object], options: str = "") -> str:
    return f"curl -s {options}{url} -d {shlex.quote(json.dumps(body))}"
