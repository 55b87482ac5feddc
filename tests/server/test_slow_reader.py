"""A client that asks for a long answer over gRPC and never reads it (F73)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.server.clients import eventually, metric, stream
from tests.server.repository import options, scripted_repository
from tools.bench_slow_reader import sleeper
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

UNREAD = 20_000
"""Tokens of the answer that nobody reads."""
GROWTH_BYTES_MAX = 20 * 2**20 * UNREAD // 100_000
"""20 MB for 100,000 tokens."""


def memory_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.case("F73")
def test_what_nobody_reads_costs_the_server_little_and_its_neighbours_nothing(tmp_path: Path) -> None:
    folder = scripted_repository(tmp_path / "repository")
    script = json.loads((folder / "script.json").read_text())
    (folder / "script.json").write_text(json.dumps({**script, "latency_ms": 0.0, "length_max": 2 * UNREAD}))
    loaded = ("token_router", "small", "large")
    with TritonServer(options(folder, tmp_path / "run", load_models=loaded)) as server:
        ask = {"text_input": "94", "max_tokens": 200, "seed": 5}
        alone = [event["text_output"] for event in stream(server, "token_router", **ask)]
        before, written = memory_bytes(server.pid), tokens(server)
        with sleeper(server.grpc_address, UNREAD):
            beside = [event["text_output"] for event in stream(server, "token_router", **ask)]
            assert eventually(lambda: tokens(server) >= written + UNREAD, within_s=100)
            assert memory_bytes(server.pid) - before < GROWTH_BYTES_MAX
    assert "".join(beside) == "".join(alone) != ""


def tokens(server: TritonServer) -> float:
    models = ("small", "large")
    return sum(metric(server, "token_router_tokens_committed_total", model=name) for name in models)
