"""A closed loop of clients in one process: each starts its next request when its last one has ended.

Owns one gRPC stream per client and what it saw arrive; decides nothing. Tokens are those that the server
counted (`num_output_tokens`), never responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.grpc.aio as grpc_aio

from tools.emulation.deployment import DOOR

PROMPT = "00 01 02 03"
FINAL = "triton_final_response"


class ClosedLoopError(Exception):
    """A request failed or none ended: there is nothing to measure."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One response of one client: when (seconds), with how many tokens, and whether it ended its request."""

    at: float
    tokens: int
    is_last: bool


@dataclass(slots=True)
class Client:
    """One worker's requests and everything that has arrived."""

    seeds: Iterator[int]
    max_tokens: int
    arrivals: list[Arrival] = field(default_factory=list)

    async def run(self, connection: Any) -> None:
        """Until cancelled."""
        may_ask = asyncio.Semaphore(1)
        responses = connection.stream_infer(self._requests(may_ask))
        async for result, error in responses:
            if error is not None:
                raise ClosedLoopError(str(error))
            is_last = self._note(result)
            if is_last:
                may_ask.release()

    def _note(self, result: Any) -> bool:
        response = result.get_response()
        tokens = result.as_numpy("num_output_tokens")
        is_last = bool(response.parameters[FINAL].bool_param)
        self.arrivals.append(Arrival(time.perf_counter(), int(tokens.sum()), is_last))
        return is_last

    async def _requests(self, may_ask: asyncio.Semaphore) -> AsyncIterator[dict[str, Any]]:
        while True:
            await may_ask.acquire()
            yield request(next(self.seeds), self.max_tokens)


def request(seed: int, max_tokens: int) -> dict[str, Any]:
    """The arguments of one streamed request."""
    inputs = [
        _tensor("text_input", "BYTES", np.array([PROMPT.encode()], dtype=object)),
        _tensor("max_tokens", "INT32", np.array([max_tokens], dtype=np.int32)),
        _tensor("seed", "UINT64", np.array([seed], dtype=np.uint64)),
        _tensor("stream", "BOOL", np.array([True])),
        _tensor("return_num_output_tokens", "BOOL", np.array([True])),
    ]
    outputs = [grpc.InferRequestedOutput("num_output_tokens")]
    return {"model_name": DOOR, "inputs": inputs, "outputs": outputs}


async def run_clients(address: str, clients: list[Client], seconds: float) -> None:
    """Let the clients work for so long, then cancel what is open; ClosedLoopError if a request failed."""
    async with grpc_aio.InferenceServerClient(address) as connection:
        tasks = [asyncio.create_task(client.run(connection)) for client in clients]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if done:
            raise ClosedLoopError("a client's stream ended by itself")


def _tensor(name: str, kind: str, value: Any) -> Any:
    tensor = grpc.InferInput(name, list(value.shape), kind)
    tensor.set_data_from_numpy(value)
    return tensor
