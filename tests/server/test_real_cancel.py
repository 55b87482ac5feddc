"""A client that goes away frees both models, whichever way it goes and through whichever door."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.server.clients import eventually, generate, grpc_stream, held, metric, settled, sse
from tests.server.test_doors import DOORS, PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

ENDLESS = {"text_input": PROMPT, "max_tokens": 4000, "ignore_eos": True}
SWITCHING = {"routing_algorithm": "r_stitch", "routing_config": json.dumps({"cutoff": 0.05})}


@pytest.fixture(autouse=True)
def _everything_is_free_before_and_after(server: TritonServer) -> Iterator[None]:
    assert eventually(lambda: held(server) == 0)
    yield
    assert eventually(lambda: held(server) == 0, within_s=8)


@pytest.mark.parametrize("door", DOORS)
def test_closing_an_http_stream_frees_both_models(server: TritonServer, door: str) -> None:
    before = settled(lambda: metric(server, "token_router_requests_total", finished="cancelled"))
    with sse(server, door, **ENDLESS, **SWITCHING) as events:
        next(events)
        assert eventually(lambda: held(server) > 0)
    assert eventually(
        lambda: metric(server, "token_router_requests_total", finished="cancelled") == before + 1
    )


@pytest.mark.parametrize("door", DOORS)
def test_cancelling_a_grpc_stream_frees_both_models(server: TritonServer, door: str) -> None:
    with grpc_stream(server) as opened:
        for _ in range(4):
            opened.ask(door, stream=True, **ENDLESS, **SWITCHING)
        for _ in range(4):
            opened.read()
        assert eventually(lambda: held(server) > 0)
        opened.cancel()


def test_stop_with_its_id_ends_a_request_of_the_ensemble(server: TritonServer) -> None:
    with grpc_stream(server) as opened:
        opened.ask("ensemble", request_id="mine", stream=True, **ENDLESS, **SWITCHING)
        opened.read()
        generate(server, "router", id="mine", input_ids=[1], request_output_len=1, stop=True)
        assert opened.read_all()[-1]["finish_reason"].flat[0] == b"cancelled"


@pytest.mark.parametrize("door", DOORS)
def test_a_deadline_ends_a_request_with_an_error(server: TritonServer, door: str) -> None:
    answer = generate(server, door, timeout=300_000, **ENDLESS, **SWITCHING)
    assert (answer.status, "TR_" in answer.error) == (400, True), answer
