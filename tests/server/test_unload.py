"""Models are unloaded and loaded again while requests run: a door drains, a subserver's requests are told."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.clients import eventually, generate, metric, post, settled, stream
from tests.server.repository import options, scripted_repository
from tests.server.test_lifecycle import ALWAYS, PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

MODELS = ("token_router", "ensemble", "small", "large")
STREAMS = 4
LEFT = ("live", "live_requests", "queued_requests", "open_streams")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder: Path = tmp_path_factory.mktemp("unload")
    repository = scripted_repository(folder / "repository")
    with TritonServer(options(repository, folder / "run", load_models=MODELS)) as started:
        yield started


def body(seed: int) -> dict[str, object]:
    common = {"text_input": PROMPT, "max_tokens": 600, "ignore_eos": True, "return_finish_reason": True}
    return {**common, "seed": seed, **ALWAYS}


def right(server: TritonServer, door: str) -> list[str]:
    answers = [generate(server, door, **body(seed)) for seed in range(STREAMS)]
    assert {answer.status for answer in answers} == {200}, answers
    return [answer.body["text_output"] for answer in answers]


def streams_beside(server: TritonServer, door: str, unload: str) -> list[list[dict[str, Any]]]:
    """What clients hear whose streams are open when `unload` is unloaded."""
    with ThreadPoolExecutor(STREAMS) as pool:
        jobs = [pool.submit(stream, server, door, **body(seed)) for seed in range(STREAMS)]
        assert eventually(lambda: metric(server, "token_router_open_streams") == STREAMS)
        assert post(server, f"/v2/repository/models/{unload}/unload", {}).status == 200
        return [job.result() for job in jobs]


def text(events: list[dict[str, Any]]) -> str:
    return "".join(event.get("text_output", "") for event in events)


def assert_serves_again(server: TritonServer, door: str, load: str) -> None:
    """Loaded again it writes the right texts, and of the requests before nothing is left."""
    assert post(server, f"/v2/repository/models/{load}/load", {}).status == 200
    assert eventually(lambda: generate(server, door, **{**body(0), "max_tokens": 4}).status == 200)
    assert eventually(server.is_ready)
    assert settled(lambda: left(server)) == dict.fromkeys(LEFT, 0)


def left(server: TritonServer) -> dict[str, float]:
    """What is still open or held."""
    return {name: metric(server, f"token_router_{name}") for name in LEFT}


@pytest.mark.parametrize("model", ["small", "large"])
def test_requests_of_a_subserver_that_is_unloaded_are_told_and_the_next_ones_served(
    server: TritonServer, model: str
) -> None:
    texts = right(server, "token_router")
    heard = streams_beside(server, "token_router", model)
    for events, whole in zip(heard, texts, strict=True):
        assert "TR_PEER_LOST" in events[-1]["error"], events[-1]
        assert sum("error" in event or "finish_reason" in event for event in events) == 1
        assert whole.startswith(text(events))
    assert_serves_again(server, "token_router", model)
    assert right(server, "token_router") == texts


@pytest.mark.parametrize(("door", "unload"), [("token_router", "token_router"), ("ensemble", "router")])
def test_a_door_that_is_unloaded_lets_its_streams_finish_and_takes_no_more(
    server: TritonServer, door: str, unload: str
) -> None:
    texts = right(server, door)
    heard = streams_beside(server, door, unload)
    assert [text(events) for events in heard] == texts
    assert {events[-1]["finish_reason"] for events in heard} == {"length"}
    refused = generate(server, door, **body(0))
    assert (refused.status, "no available versions" in refused.error) == (404, True)
    assert_serves_again(server, door, door)
    assert right(server, door) == texts


def test_a_model_is_not_loaded_twice(server: TritonServer) -> None:
    """A load of what is loaded changes nothing: the process stays, and so do its streams."""
    before = server.stubs()["large"]
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(stream, server, "token_router", **body(1))
        assert eventually(lambda: metric(server, "token_router_open_streams") == 1)
        assert post(server, "/v2/repository/models/large/load", {}).status == 200
        assert job.result()[-1]["finish_reason"] == "length"
    assert server.stubs()["large"] == before
