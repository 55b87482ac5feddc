"""Who is alive: the last sign of life of every other endpoint.

Decides on times it is given; must never read a clock or send anything. The invariant: an endpoint
that is up was heard at most `timeout_s` (and one turn) ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class News(Enum):
    """What a sign of life says beyond life."""

    NOTHING = "nothing"
    BACK = "back"
    """It had been lost, or was never known."""
    RESTARTED = "restarted"
    """Another process answers to the name; what the former one held is lost."""


@dataclass(slots=True)
class _Endpoint:
    heard_at: float
    instance: int | None = None
    is_up: bool = True


class PeerWatch:
    """Times are seconds on the caller's clock; `expected` endpoints count as up from `now` on."""

    def __init__(self, expected: tuple[str, ...], timeout_s: float, now: float) -> None:
        self._expected = expected
        self._timeout_s = timeout_s
        self._judged_at = now
        self._endpoints = {name: _Endpoint(now) for name in expected}

    def hear(self, name: str, now: float, instance: int | None = None) -> News:
        """A sign of life, with the number of its process if it was a beat."""
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            endpoint = self._endpoints[name] = _Endpoint(now, is_up=False)
        is_other = None not in (instance, endpoint.instance) and instance != endpoint.instance
        was_up = endpoint.is_up
        endpoint.instance = endpoint.instance if instance is None else instance
        endpoint.heard_at = now
        endpoint.is_up = True
        if is_other:
            return News.RESTARTED
        return News.NOTHING if was_up else News.BACK

    def judge(self, now: float) -> list[str]:
        """The endpoints that are up but silent for too long, in the order they became known.

        A caller that did not judge for half the limit was itself stopped (a suspended machine, a long
        pause): it cannot have heard anybody, so everybody gets the time once more.
        """
        if now - self._judged_at > self._timeout_s / 2:
            for endpoint in self._endpoints.values():
                endpoint.heard_at = max(endpoint.heard_at, now - self._timeout_s / 2)
        self._judged_at = now
        return [
            name
            for name, endpoint in self._endpoints.items()
            if endpoint.is_up and now - endpoint.heard_at > self._timeout_s
        ]

    def lose(self, name: str) -> None:
        """`name` counts as down until it is heard again; one that was not expected is forgotten."""
        if name in self._expected:
            self._endpoints[name].is_up = False
        else:
            self._endpoints.pop(name, None)

    def heard_at(self, name: str) -> float:
        """When `name` gave its last sign of life; minus infinity for one that is not known."""
        endpoint = self._endpoints.get(name)
        return float("-inf") if endpoint is None else endpoint.heard_at

    def is_up(self, name: str) -> bool:
        endpoint = self._endpoints.get(name)
        return endpoint is not None and endpoint.is_up

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._endpoints)

    def up(self, names: tuple[str, ...]) -> int:
        """How many of `names` are up."""
        return sum(self.is_up(name) for name in names)
