"""Servers of their own for what destroys one: killed processes, bad repositories, ending with streams."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.clients import eventually, generate, grpc_stream, post, sse
from tests.server.conftest import assert_nothing_left
from tests.server.repository import options, scripted_repository
from tools.triton_server import Ports, ServerError, TritonServer

pytestmark = pytest.mark.server

PROMPT = "bend push flip turn push toss lift turn twist spin turn spin 13"
LONG = {"text_input": PROMPT, "max_tokens": 2000, "ignore_eos": True}
ALWAYS = {"routing_algorithm": "r_stitch", "routing_config": json.dumps({"cutoff": 0.001})}
NEVER = {"routing_algorithm": "fixed", "routing_config": json.dumps({"mode": "never"})}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TritonServer]:
    with TritonServer(options(scripted_repository(tmp_path / "repository"), tmp_path / "run")) as server:
        yield server


def test_death_of_a_subserver_ends_its_streams_and_nothing_hangs(own: TritonServer) -> None:
    pids = own.stubs()
    with grpc_stream(own) as text, grpc_stream(own) as ensemble:
        text.ask("token_router", stream=True, **LONG, **ALWAYS)
        ensemble.ask("ensemble", stream=True, **LONG, **ALWAYS)
        text.read()
        ensemble.read()
        os.kill(pids["large"], signal.SIGKILL)
        killed_at = time.monotonic()
        direct, through = text.read_all()[-1], ensemble.read_all()[-1]
        assert time.monotonic() - killed_at < 5.0
    assert "TR_PEER_LOST" in str(direct)
    assert b"TR_PEER_LOST" in through["error_message"].flat[0]
    assert eventually(lambda: not own.is_ready())
    assert "TR_PEER_LOST" in generate(own, "token_router", text_input=PROMPT, max_tokens=4, **ALWAYS).error
    assert generate(own, "token_router", text_input=PROMPT, max_tokens=4, **NEVER).status == 200
    stopping_at = time.monotonic()
    own.stop()
    assert time.monotonic() - stopping_at < own.options.exit_timeout_s + 10
    assert_nothing_left(own, list(pids.values()))


def test_a_dead_subserver_can_be_taken_out_and_put_back(tmp_path: Path) -> None:
    folder = scripted_repository(tmp_path / "repository")
    models = ("token_router", "ensemble", "small", "large")
    with TritonServer(options(folder, tmp_path / "run", load_models=models)) as server:
        os.kill(server.stubs()["small"], signal.SIGKILL)
        assert eventually(lambda: not server.is_ready())
        for step in ("unload", "load"):
            assert post(server, f"/v2/repository/models/small/{step}", {}).status == 200
        assert eventually(server.is_ready)
        assert generate(server, "token_router", text_input=PROMPT, max_tokens=4, **ALWAYS).status == 200


def test_stopping_lets_an_open_stream_finish(own: TritonServer) -> None:
    body = {"text_input": PROMPT, "max_tokens": 200, "ignore_eos": True, "return_finish_reason": True}
    with sse(own, "token_router", **body, **NEVER) as events:
        next(events)
        os.kill(own.pid, signal.SIGTERM)
        assert list(events)[-1]["finish_reason"] == "length"
    own.stop()
    assert not own.is_alive


def test_a_taken_port_is_named(tmp_path: Path, own: TritonServer) -> None:
    wanted = options(tmp_path / "repository", tmp_path / "other", ports=Ports(http=own.ports.http))
    with pytest.raises(ServerError, match=f"http port {own.ports.http} cannot be used"):
        TritonServer(wanted).start()


def test_a_model_that_does_not_load_is_named_and_nothing_stays(tmp_path: Path) -> None:
    folder = scripted_repository(tmp_path / "repository")
    config = folder / "router" / "config.pbtxt"
    config.write_text(config.read_text().replace('"ensemble"', '"sideways"'))
    server = TritonServer(options(folder, tmp_path / "run"))
    with pytest.raises(ServerError, match="parameter door: 'sideways'"):
        server.start()
    assert_nothing_left(server, [])
