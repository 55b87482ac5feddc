"""Our systems: one Triton server with both models, asked through its router by token ids over gRPC."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio
import yaml

from python_backend.config import parse_deployment
from tools.make_repository import repository_files, write
from tools.peers.pair import NAMES, Pair
from tools.peers.workload import LARGE, Question
from tools.triton_server import ServerOptions, TritonServer

ROUTER = "router"
FINAL = "triton_final_response"
KV_TOKENS = 1 << 18
MODES = ("delayed", "eager_async", "step_sync", "model_sync")


class RoutedError(RuntimeError):
    """The server refused or broke off an answer."""


@contextlib.contextmanager
def serving(pair: Pair, folder: Path, mode: str) -> Iterator[TritonServer]:
    """Triton with the pair behind the router; everything of it in `folder`, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    repository = folder / "repository"
    repository.mkdir(parents=True)
    text = deployment_text(pair, repository, mode)
    (repository / "deployment.yaml").write_text(text)
    write(repository_files(parse_deployment(text, "bench_peers")), repository)
    options = ServerOptions(repository, folder / "run", load_models=(ROUTER, *NAMES), exit_timeout_s=5)
    with TritonServer(options) as server:
        yield server


def deployment_text(pair: Pair, repository: Path, mode: str) -> str:
    """The deployment: as a user would write it, with every token sent when it is there."""
    models = []
    for name, source in pair.folders.items():
        shutil.copytree(source, repository / name / "1")
        heads = {path.name: f"{name}/1/heads/{path.name}" for path in sorted(source.glob("heads/*"))}
        model = {"name": name, "engine": "torch", "kv_tokens": KV_TOKENS}
        models.append({**model, "heads": heads} if heads else model)
    return yaml.safe_dump(
        {
            "models": models,
            "policy": {"name": "random", "params": {"p": 0.0}},
            "mode": mode,
            "thresholds": "auto" if mode == "delayed" else "fixed",
            "front": {"flush_tokens": 1, "flush_ms": 0.0},
        }
    )


@dataclass(slots=True)
class Routed:
    """The running server under one policy; `policy` and its options are the request's."""

    server: TritonServer
    client: Any
    policy: str
    options: dict[str, Any]
    temperature: float = 0.0

    def pids(self) -> list[int]:
        return [self.server.pid]

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        async for writers in self.writers(question):
            yield len(writers), writers.count(LARGE)

    async def writers(self, question: Question) -> AsyncIterator[list[int]]:
        """Which model wrote each token, as they arrive."""

        async def once() -> AsyncIterator[dict[str, Any]]:
            yield self._request(question)

        async for result, error in self.client.stream_infer(once()):
            if error is not None:
                raise RoutedError(str(error))
            sources = result.as_numpy("token_source")
            if sources is not None and sources.size:
                yield sources.ravel().tolist()
            if result.get_response().parameters[FINAL].bool_param:
                return

    def _request(self, question: Question) -> dict[str, Any]:
        options = dict(self.options)
        if self.policy == "random":
            options["p"] = question.coins.leave
        inputs = [
            _tensor("input_ids", "INT32", np.array([question.ids], np.int32)),
            _tensor("request_output_len", "INT32", np.array([[question.output_tokens]], np.int32)),
            _tensor("seed", "UINT64", np.array([[question.seed]], np.uint64)),
            _tensor("streaming", "BOOL", np.array([[True]])),
            _tensor("ignore_eos", "BOOL", np.array([[True]])),
            _tensor("return_routing", "BOOL", np.array([[True]])),
            _tensor("routing_algorithm", "BYTES", np.array([[self.policy.encode()]], object)),
            _tensor("temperature", "FP32", np.array([[self.temperature]], np.float32)),
            _tensor("routing_config", "BYTES", np.array([[json.dumps(options).encode()]], object)),
        ]
        return {"model_name": ROUTER, "inputs": inputs}


@contextlib.asynccontextmanager
async def asked(server: TritonServer, policy: str, options: dict[str, Any]) -> AsyncIterator[Routed]:
    """A `Routed` with a connection of its own."""
    async with grpc_aio.InferenceServerClient(server.grpc_address) as client:
        yield Routed(server, client, policy, options)


def _tensor(name: str, kind: str, value: Any) -> Any:
    tensor = grpc.InferInput(name, list(value.shape), kind)
    tensor.set_data_from_numpy(value)
    return tensor
