"""Two Triton servers on two hosts: the far one in a network namespace, 2 ms and 1 % loss away."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.clients import eventually, generate, metric, settled, sse
from tests.server.test_lifecycle import ALWAYS, LONG, NEVER, PROMPT
from tools.hosts.pair_of_hosts import NEAR, addresses, far_server, near_server, write_deployment
from tools.hosts.wire import Weather, Wire, obstacle
from tools.triton_server import TritonServer, children

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a second host can be made"),
]
REQUESTS, CLIENTS, TOKENS = 12, 6, 40
RECOVERY_S = 60.0
"""Unload, a pause, load and the first beat, on a slow and busy machine."""


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire(Weather(delay_s=0.002, loss_p=0.01, seed=1)) as laid:
        yield laid


def told(server: TritonServer, policy: dict[str, str]) -> list[str]:
    """The answer to each seed."""
    body = {"text_input": PROMPT, "max_tokens": TOKENS, "ignore_eos": True, **policy}
    with ThreadPoolExecutor(CLIENTS) as pool:
        asked = pool.map(lambda seed: generate(server, "token_router", seed=seed, **body), range(REQUESTS))
        found = list(asked)
    assert {answer.status for answer in found} == {200}, found
    return [answer.body["text_output"] for answer in found]


def handed_over(server: TritonServer) -> float:
    return settled(lambda: metric(server, "token_router_handoffs_sent_total", model="small"))


def test_a_deployment_on_two_hosts_answers_exactly_survives_the_far_one_and_takes_it_back(
    wire: Wire, tmp_path: Path
) -> None:
    deployment = write_deployment(
        tmp_path / "whole", addresses(wire.here, wire.there), on_peer_loss="continue_local"
    )
    with both(wire, deployment, tmp_path) as (near, far_pid):
        expected = told(near, NEVER)
        before = handed_over(near)
        assert told(near, ALWAYS) == expected
        assert handed_over(near) > before
        with sse(near, "token_router", **LONG, **ALWAYS) as events:
            next(events)
        assert eventually(lambda: metric(near, "token_router_live", model="small") == 0)

        os.kill(stub_of(far_pid), signal.SIGKILL)
        assert eventually(lambda: not near.is_ready())
        assert told(near, ALWAYS) == expected
        # The far host looks after its own: it loads the model again.
        assert eventually(near.is_ready, within_s=RECOVERY_S)
        before = handed_over(near)
        assert told(near, ALWAYS) == expected
        assert handed_over(near) > before
    assert wire.lost > 0


@contextmanager
def both(wire: Wire, deployment: Path, folder: Path) -> Iterator[tuple[TritonServer, int]]:
    """The near server, and the process id of the far one's keeper."""
    with (
        far_server(wire, deployment, folder / "far") as keeper,
        near_server(deployment, folder / "near", NEAR) as near,
    ):
        yield near, keeper.pid


def stub_of(keeper: int) -> int:
    """The only Python process of the far host's Triton."""
    servers = [pid for pid in children(keeper) if b"bin/tritonserver" in command(pid)]
    (stub,) = [pid for pid in children(servers[0]) if b"triton_python_backend_stub" in command(pid)]
    return stub


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
