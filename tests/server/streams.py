"""Several clients at once, each of which reads one long answer of the text door."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tests.server.clients import eventually, generate, post, sse, text_of
from tests.server.test_lifecycle import ALWAYS, PROMPT
from tools.triton_server import TritonServer

PAUSE_S = 120.0
"""Longest pause of a stream whose model is loaded again, on a slow and busy machine."""
Event = dict[str, Any]


@dataclass(frozen=True)
class Crowd:
    """So many clients, whose answers have `length` tokens; a client's number is its seed."""

    server: TritonServer
    clients: int
    length: int

    def body(self, seed: int) -> dict[str, object]:
        fixed = {"text_input": PROMPT, "ignore_eos": True, **ALWAYS}
        return {**fixed, "max_tokens": self.length, "seed": seed}

    def alone(self) -> list[str]:
        """The undisturbed answer to each, one after the other."""
        answers = [generate(self.server, "token_router", **self.body(seed)) for seed in range(self.clients)]
        assert {answer.status for answer in answers} == {200}
        return [answer.body["text_output"] for answer in answers]

    def streams(self) -> Streams:
        """All at once, and every one of them has begun."""
        found = Streams(self, [[] for _ in range(self.clients)])
        assert eventually(lambda: all(len(events) > 2 for events in found.events))
        return found


@dataclass
class Streams:
    """Clients that read in threads of their own; `events` by seed."""

    crowd: Crowd
    events: list[list[Event]]
    _threads: list[threading.Thread] = field(init=False)

    def __post_init__(self) -> None:
        self._threads = [threading.Thread(target=self._read, args=[seed]) for seed in range(len(self.events))]
        for thread in self._threads:
            thread.start()

    def _read(self, seed: int) -> None:
        body = {"return_finish_reason": True, **self.crowd.body(seed)}
        with sse(self.crowd.server, "token_router", PAUSE_S, **body) as events:
            for event in events:
                self.events[seed].append(event)

    def ended(self) -> list[list[Event]]:
        """What each client got, once all have it."""
        for thread in self._threads:
            thread.join()
        return self.events

    def texts(self) -> list[str]:
        """The same as text; no error among it."""
        assert not [event for events in self.ended() for event in events if "error" in event]
        return [text_of(events) for events in self.events]

    def errors(self) -> set[str]:
        """How the streams ended."""
        return {str(events[-1].get("error", "")).partition(":")[0] for events in self.ended()}


def revive(server: TritonServer, model: str) -> None:
    """Load a model anew; the server is ready afterwards."""
    for step in ("unload", "load"):
        assert post(server, f"/v2/repository/models/{model}/{step}", {}).status == 200
    assert eventually(server.is_ready)
