"""What a load test asks, whom, and what it saw; the same for every tool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class LoadError(Exception):
    """The test cannot go on; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """A running server. `http` and `grpc` are host:port, `metrics` is a URL."""

    http: str
    grpc: str
    metrics: str
    door: str = "token_router"


@dataclass(frozen=True, slots=True)
class Work:
    """One level of a sweep: `requests` in all, at most `clients` at a time, prompts in turn."""

    prompts: tuple[str, ...]
    max_tokens: int
    clients: int
    requests: int


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as a client saw it; seconds on the client's clock. An error has no first response."""

    asked_at: float
    first_at: float | None
    ended_at: float
    error: str = ""


Loader = Callable[[Target, Work, Path], list[Seen]]
"""Puts one level of load on a server; may write into the folder; LoadError when it cannot."""
