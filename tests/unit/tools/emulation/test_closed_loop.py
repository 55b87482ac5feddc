"""Clients against a connection that answers by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from tools.emulation import closed_loop
from tools.emulation.closed_loop import Client, ClosedLoopError, request, run_clients


class Parameter:
    def __init__(self, value: bool) -> None:
        self.bool_param = value


class Result:
    """One response with `tokens` tokens."""

    def __init__(self, tokens: int, is_last: bool) -> None:
        self.tokens = tokens
        self.parameters = {closed_loop.FINAL: Parameter(is_last)}

    def get_response(self) -> Result:
        return self

    def as_numpy(self, name: str) -> Any:
        assert name == "num_output_tokens"
        return np.array([self.tokens])


class Connection:
    """Answers each request with two responses; fails or falls silent after so many requests."""

    def __init__(self, answers: int, ending: str) -> None:
        self.answers = answers
        self.ending = ending
        self.asked: list[dict[str, Any]] = []

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *failure: object) -> None:
        return None

    async def stream_infer(self, requests: AsyncIterator[dict[str, Any]]) -> AsyncIterator[Any]:
        async for one in requests:
            self.asked.append(one)
            if len(self.asked) <= self.answers:
                yield Result(1, False), None
                yield Result(2, True), None
            elif self.ending == "error":
                yield None, "TR_PEER_LOST: gone"
            elif self.ending == "end":
                return
            else:
                await asyncio.Event().wait()


def run(monkeypatch: pytest.MonkeyPatch, connection: Connection, client: Client) -> None:
    monkeypatch.setattr(closed_loop.grpc_aio, "InferenceServerClient", lambda address: connection)
    asyncio.run(run_clients("nowhere", [client], 0.1))


def test_the_next_request_starts_when_the_last_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, client = Connection(2, "silence"), Client(itertools.count(7), 40)
    run(monkeypatch, connection, client)

    assert [(arrival.tokens, arrival.is_last) for arrival in client.arrivals] == [(1, False), (2, True)] * 2
    assert len(connection.asked) == 3
    times = [arrival.at for arrival in client.arrivals]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("ending", "message"), [("error", "TR_PEER_LOST: gone"), ("end", "a client's stream ended by itself")]
)
def test_a_client_that_fails_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, ending: str, message: str
) -> None:
    with pytest.raises(ClosedLoopError, match=message):
        run(monkeypatch, Connection(1, ending), Client(itertools.count(), 40))


def test_a_request_streams_and_asks_for_its_token_counts() -> None:
    asked = request(12, 40)

    assert asked["model_name"] == "token_router"
    assert [tensor.name() for tensor in asked["inputs"]] == [
        *("text_input", "max_tokens", "seed", "stream", "return_num_output_tokens")
    ]
    assert [output.name() for output in asked["outputs"]] == ["num_output_tokens"]
