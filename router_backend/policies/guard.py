"""A policy's mistakes cost its own requests and nothing else.

Routing rules are written by users. Whatever one raises or answers, the batch goes on: the guard turns
it into a PolicyError that names the policy and the method, and the scheduler ends the rows concerned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np

from router_backend.core.errors import PolicyError
from router_backend.core.request import ModelIndex, Request
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff
from router_backend.policies.base import HoldingRouter, Router
from router_backend.scheduler.batch import IntArray, StepBatch

Answer = TypeVar("Answer")


class GuardedRouter:
    """The router `inner`, known to users as `name`; every method raises PolicyError and nothing else."""

    def __init__(self, name: str, inner: Router) -> None:
        self._name = name
        self._inner = inner
        self.needs = inner.needs
        self.holds_back = bool(getattr(inner, "holds_back", False))
        """`at_end` and `verify` are asked only of routers that have them (`HoldingRouter`)."""

    def entry(self, request: Request) -> ModelIndex:
        return self._asked("entry", lambda: self._inner.entry(request))

    def route(self, step: StepBatch) -> IntArray:
        try:
            destinations = np.asarray(self._inner.route(step))
        except Exception as error:
            raise self._fault("route", error) from error
        if destinations.shape != (len(step),) or destinations.dtype.kind not in "iu":
            answer = f"{destinations.dtype}{list(destinations.shape)}"
            raise PolicyError(f"{self._name}.route: answered {answer}, not int[{len(step)}]")
        return destinations

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        try:
            return self._inner.send(sequence, target)
        except Exception as error:
            raise self._fault("send", error) from error

    def receive(self, sequence: Sequence, handoff: Handoff) -> None:
        try:
            self._inner.receive(sequence, handoff)
        except Exception as error:
            raise self._fault("receive", error) from error

    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        holding = cast(HoldingRouter, self._inner)
        return self._asked("at_end", lambda: holding.at_end(sequence))

    def verify(self, step: StepBatch) -> IntArray:
        holding = cast(HoldingRouter, self._inner)
        counts = np.asarray(self._asked("verify", lambda: holding.verify(step)))
        is_whole = counts.shape == (len(step),) and counts.dtype.kind in "iu"
        if not (is_whole and (counts >= 0).all() and (counts <= step.draft_len).all()):
            raise PolicyError(f"{self._name}.verify: answered {counts!r} of drafts of {step.draft_len}")
        return counts

    def _asked(self, method: str, ask: Callable[[], Answer]) -> Answer:
        try:
            return ask()
        except Exception as error:
            raise self._fault(method, error) from error

    def _fault(self, method: str, error: Exception) -> PolicyError:
        return PolicyError(f"{self._name}.{method}: {type(error).__name__}: {error}")
