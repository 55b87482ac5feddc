"""Two replicas of the large model behind one door of a real Triton, and one of them killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.clients import eventually, held, metric, settled, text_of
from tests.server.conftest import assert_nothing_left
from tests.server.repository import options, scripted_repository
from tests.server.streams import Crowd, revive
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

CLIENTS = 10
LENGTH = 200
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


def committed(server: TritonServer, model: str) -> float:
    return settled(lambda: metric(server, "token_router_tokens_committed_total", model=model))


def is_up(server: TritonServer, model: str) -> float:
    return metric(server, "token_router_peer_up", door="token_router", model=model)


def test_both_replicas_work_and_one_that_dies_takes_only_its_own_requests(server: TritonServer) -> None:
    crowd = Crowd(server, CLIENTS, LENGTH)
    expected = crowd.alone()
    before = [committed(server, model) for model in REPLICAS]
    assert crowd.streams().texts() == expected
    grown = [committed(server, model) - count for model, count in zip(REPLICAS, before, strict=True)]
    assert min(grown) > 0.25 * sum(grown), grown

    streams = crowd.streams()
    os.kill(server.stubs()["large_2"], signal.SIGKILL)
    seen = streams.ended()
    failed = [seed for seed, events in enumerate(seen) if "error" in events[-1]]
    assert 0 < len(failed) < CLIENTS, seen
    for seed, events in enumerate(seen):
        assert expected[seed].startswith(text_of([event for event in events if "error" not in event]))
        assert seed in failed or text_of(events) == expected[seed]
    assert streams.errors() == {"", "TR_PEER_LOST"}

    assert eventually(lambda: is_up(server, "large_2") == 0)
    assert crowd.streams().texts() == expected

    revive(server, "large_2")
    before_2 = committed(server, "large_2")
    assert crowd.streams().texts() == expected
    assert committed(server, "large_2") > before_2
    assert eventually(lambda: held(server) == 0)
