"""A model that is killed or stopped under load, on a real Triton, for each choice of `on_peer_loss`.

Both scripted models write the same token at a position, so an answer does not depend on who was alive.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.clients import eventually, held, metric, settled
from tests.server.conftest import assert_nothing_left
from tests.server.repository import options, scripted_repository
from tests.server.streams import Crowd, revive
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

STREAMS = 6
MODELS = ("token_router", "small", "large")
LENGTH = 600
Opener = Callable[[str], TritonServer]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    started: list[TritonServer] = []

    def opener(on_peer_loss: str) -> TritonServer:
        folder = scripted_repository(tmp_path / "repository", on_peer_loss=on_peer_loss, retry_s=60.0)
        started.append(TritonServer(options(folder, tmp_path / "run", load_models=MODELS)))
        started[-1].start()
        return started[-1]

    yield opener
    for server in started:
        server.stop()
        assert_nothing_left(server, [])


def hit(server: TritonServer, model: str, number: signal.Signals) -> int:
    """Send the signal; the server says that it is not ready, within the bound of every wait here (2 to 3 s
    on a machine that is not busy). Returns the process id."""
    pid = server.stubs()[model]
    os.kill(pid, number)
    assert eventually(lambda: not server.is_ready())
    return pid


def recoveries(server: TritonServer) -> float:
    return settled(lambda: metric(server, "token_router_recoveries_total", door="token_router"))


def test_continue_local_finishes_every_stream_of_a_killed_and_of_a_stopped_model(opened: Opener) -> None:
    server = opened("continue_local")
    crowd = Crowd(server, STREAMS, LENGTH)
    expected, streams = crowd.alone(), crowd.streams()
    hit(server, "large", signal.SIGKILL)
    assert streams.texts() == expected
    assert recoveries(server) > 0
    shorter = Crowd(server, STREAMS, 8).alone()
    assert all(map(str.startswith, expected, shorter))
    revive(server, "large")

    streams = crowd.streams()
    stopped = hit(server, "large", signal.SIGSTOP)
    assert streams.texts() == expected
    os.kill(stopped, signal.SIGCONT)
    assert eventually(server.is_ready)
    assert crowd.alone() == expected
    assert eventually(lambda: held(server) == 0)


def test_retry_goes_on_once_the_killed_model_is_back(opened: Opener) -> None:
    server = opened("retry")
    crowd = Crowd(server, STREAMS, LENGTH)
    expected, streams = crowd.alone(), crowd.streams()
    hit(server, "large", signal.SIGKILL)
    told = json.dumps(streams.events)
    revive(server, "large")
    assert streams.texts() == expected
    assert recoveries(server) > 0
    assert len(json.dumps(streams.events)) > len(told), "the streams had ended before"
    assert eventually(lambda: held(server) == 0)


def test_fail_tells_the_clients_of_a_stopped_model_and_nothing_stays_when_it_wakes(opened: Opener) -> None:
    server = opened("fail")
    crowd = Crowd(server, STREAMS, LENGTH)
    expected, streams = crowd.alone(), crowd.streams()
    stopped = hit(server, "large", signal.SIGSTOP)
    assert streams.errors() == {"TR_PEER_LOST"}
    os.kill(stopped, signal.SIGCONT)
    assert eventually(server.is_ready)
    assert crowd.alone() == expected
    assert eventually(lambda: held(server) == 0)
