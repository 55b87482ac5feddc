"""Two replicas of the large model behind one door of a real Triton, and one of them killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.clients import eventually, generate, held, metric, post, settled, sse, text_of
from tests.server.conftest import assert_nothing_left
from tests.server.repository import options, scripted_repository
from tests.server.test_lifecycle import ALWAYS, PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

CLIENTS = 10
REPLICAS = ("large", "large_2")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TritonServer]:
    models = [
        {"name": "small", "engine": "scripted", "script": "script.json"},
        {"name": "large", "engine": "scripted", "script": "script.json", "replicas": 2},
    ]
    folder = scripted_repository(tmp_path / "repository", models=models)
    loaded = ("token_router", "small", *REPLICAS)
    server = TritonServer(options(folder, tmp_path / "run", load_models=loaded))
    try:
        server.start()
        yield server
    finally:
        server.stop()
    assert_nothing_left(server, [])


def body(seed: int, max_tokens: int = 200) -> dict[str, object]:
    return {"text_input": PROMPT, "max_tokens": max_tokens, "ignore_eos": True, "seed": seed, **ALWAYS}


class Clients:
    """All at once, each in a thread of its own; `events` by seed."""

    def __init__(self, server: TritonServer) -> None:
        self.events: list[list[dict[str, Any]]] = [[] for _ in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._read, args=(server, seed)) for seed in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _read(self, server: TritonServer, seed: int) -> None:
        with sse(server, "token_router", 120.0, return_finish_reason=True, **body(seed)) as events:
            for event in events:
                self.events[seed].append(event)

    def ended(self) -> list[list[dict[str, Any]]]:
        for thread in self._threads:
            thread.join()
        return self.events


def committed(server: TritonServer, model: str) -> float:
    return settled(lambda: metric(server, "token_router_tokens_committed_total", model=model))


def is_up(server: TritonServer, model: str) -> float:
    return metric(server, "token_router_peer_up", door="token_router", model=model)


def test_both_replicas_work_and_one_that_dies_takes_only_its_own_requests(server: TritonServer) -> None:
    answers = [generate(server, "token_router", **body(seed)) for seed in range(CLIENTS)]
    expected = [answer.body["text_output"] for answer in answers]
    before = [committed(server, model) for model in REPLICAS]
    assert [text_of(events) for events in Clients(server).ended()] == expected
    grown = [committed(server, model) - count for model, count in zip(REPLICAS, before, strict=True)]
    assert min(grown) > 0.25 * sum(grown), grown

    clients = Clients(server)
    assert eventually(lambda: all(len(events) > 2 for events in clients.events))
    os.kill(server.stubs()["large_2"], signal.SIGKILL)
    seen = clients.ended()
    failed = [seed for seed, events in enumerate(seen) if "error" in events[-1]]
    assert 0 < len(failed) < CLIENTS, seen
    for seed, events in enumerate(seen):
        assert expected[seed].startswith(text_of([event for event in events if "error" not in event]))
        assert seed in failed or text_of(events) == expected[seed]
    assert {str(seen[seed][-1]["error"]).partition(":")[0] for seed in failed} == {"TR_PEER_LOST"}

    assert eventually(lambda: is_up(server, "large_2") == 0)
    assert [text_of(events) for events in Clients(server).ended()] == expected

    for step in ("unload", "load"):
        assert post(server, f"/v2/repository/models/large_2/{step}", {}).status == 200
    assert eventually(server.is_ready)
    before_2 = committed(server, "large_2")
    assert [text_of(events) for events in Clients(server).ended()] == expected
    assert committed(server, "large_2") > before_2
    assert eventually(lambda: held(server) == 0)
