"""A model that is killed or stopped under load, on a real Triton, for each choice of `on_peer_loss`.

Both scripted models write the same token at a position, so an answer does not depend on who was alive.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.clients import eventually, generate, held, metric, post, settled, sse, text_of
from tests.server.conftest import assert_nothing_left
from tests.server.repository import options, scripted_repository
from tests.server.test_lifecycle import ALWAYS, PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

STREAMS = 6
MODELS = ("token_router", "small", "large")
PAUSE_S = 120.0
"""Longest pause of a stream whose model is loaded again, on a slow and busy machine."""
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


def body(seed: int, max_tokens: int = 600) -> dict[str, object]:
    return {"text_input": PROMPT, "max_tokens": max_tokens, "ignore_eos": True, "seed": seed, **ALWAYS}


def answered(server: TritonServer, max_tokens: int = 600) -> list[str]:
    """The undisturbed answer to each seed."""
    answers = [generate(server, "token_router", **body(seed, max_tokens)) for seed in range(STREAMS)]
    assert {answer.status for answer in answers} == {200}
    return [answer.body["text_output"] for answer in answers]


class Streams:
    """Clients that read in threads of their own; `events` by seed."""

    def __init__(self, server: TritonServer) -> None:
        self.events: list[list[dict[str, Any]]] = [[] for _ in range(STREAMS)]
        self._threads = [threading.Thread(target=self._read, args=(server, seed)) for seed in range(STREAMS)]
        for thread in self._threads:
            thread.start()
        assert eventually(lambda: all(len(events) > 2 for events in self.events))

    def _read(self, server: TritonServer, seed: int) -> None:
        with sse(server, "token_router", PAUSE_S, return_finish_reason=True, **body(seed)) as events:
            for event in events:
                self.events[seed].append(event)

    def texts(self) -> list[str]:
        """What each client got in the end; no error among it."""
        for thread in self._threads:
            thread.join()
        assert not [event for events in self.events for event in events if "error" in event]
        return [text_of(events) for events in self.events]

    def errors(self) -> set[str]:
        """How the streams ended."""
        for thread in self._threads:
            thread.join()
        return {str(events[-1].get("error", "")).partition(":")[0] for events in self.events}


def hit(server: TritonServer, model: str, number: signal.Signals) -> int:
    """Send the signal; the server says that it is not ready, within the bound of every wait here (2 to 3 s
    on a machine that is not busy). Returns the process id."""
    pid = server.stubs()[model]
    os.kill(pid, number)
    assert eventually(lambda: not server.is_ready())
    return pid


def revive(server: TritonServer, model: str) -> None:
    for step in ("unload", "load"):
        assert post(server, f"/v2/repository/models/{model}/{step}", {}).status == 200
    assert eventually(server.is_ready)


def recoveries(server: TritonServer) -> float:
    return settled(lambda: metric(server, "token_router_recoveries_total", door="token_router"))


def test_continue_local_finishes_every_stream_of_a_killed_and_of_a_stopped_model(opened: Opener) -> None:
    server = opened("continue_local")
    expected = answered(server)
    streams = Streams(server)
    hit(server, "large", signal.SIGKILL)
    assert streams.texts() == expected
    assert recoveries(server) > 0
    assert answered(server, 8) == [text_of_first(text, server, seed) for seed, text in enumerate(expected)]
    revive(server, "large")

    streams = Streams(server)
    stopped = hit(server, "large", signal.SIGSTOP)
    assert streams.texts() == expected
    os.kill(stopped, signal.SIGCONT)
    assert eventually(server.is_ready)
    assert answered(server) == expected
    assert eventually(lambda: held(server) == 0)


def text_of_first(text: str, server: TritonServer, seed: int) -> str:
    """The answer to a shorter request is the beginning of the longer one's."""
    found: str = generate(server, "token_router", **body(seed, 8)).body["text_output"]
    assert text.startswith(found)
    return found


def test_retry_goes_on_once_the_killed_model_is_back(opened: Opener) -> None:
    server = opened("retry")
    expected = answered(server)
    streams = Streams(server)
    hit(server, "large", signal.SIGKILL)
    told = json.dumps(streams.events)
    revive(server, "large")
    assert streams.texts() == expected
    assert recoveries(server) > 0
    assert len(json.dumps(streams.events)) > len(told), "the streams had ended before"
    assert eventually(lambda: held(server) == 0)


def test_fail_tells_the_clients_of_a_stopped_model_and_nothing_stays_when_it_wakes(opened: Opener) -> None:
    server = opened("fail")
    expected = answered(server)
    streams = Streams(server)
    stopped = hit(server, "large", signal.SIGSTOP)
    assert streams.errors() == {"TR_PEER_LOST"}
    os.kill(stopped, signal.SIGCONT)
    assert eventually(server.is_ready)
    assert answered(server) == expected
    assert eventually(lambda: held(server) == 0)
