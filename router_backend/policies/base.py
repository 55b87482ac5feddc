"""The whole interface of a routing algorithm: `route`, `send`, `receive`.

A policy is written from one request's point of view and runs vectorised over the rows of a step.
It decides on numbers that the engine computed in the same pass; it never sees queues, batches of
other policies, sockets or tensors on a device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from router_backend.core.request import ModelIndex, Request
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.scheduler.batch import IntArray, Needs, StepBatch

LOCAL = 0
"""The destination that means: stay on this model."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a policy instance runs. Models are indexed in deployment order, smallest first."""

    model: ModelIndex
    models: tuple[str, ...]
    entry: ModelIndex
    vocab_size: int
    """Real vocabulary shared by all models; normalises the entropy."""
    heads: Mapping[str, Mapping[str, float]] = field(default_factory=dict, compare=False)
    """By model: the router heads that its runner has, with each artefact's cutoff; the same everywhere."""

    @property
    def peers(self) -> tuple[ModelIndex, ...]:
        """Model index of peer 1, 2, ...: the other models in deployment order."""
        return tuple(ModelIndex(i) for i in range(len(self.models)) if i != self.model)

    def destination(self, model: ModelIndex) -> int:
        """What `route` returns to send a row to `model` (LOCAL if that is here)."""
        return LOCAL if model == self.model else self.peers.index(model) + 1


class Router(Protocol):
    """One policy on one model."""

    needs: Needs

    def entry(self, request: Request) -> ModelIndex:
        """Which model writes the first token."""
        ...

    def route(self, step: StepBatch) -> IntArray:
        """One destination per row: 0 = stay here, k = peer k (`Place.peers[k - 1]`)."""
        ...

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        """The message to `target`. The sampled token is already the last of `sequence.tokens`;
        a message whose `loc` is one less discards it."""
        ...

    def receive(self, sequence: Sequence, handoff: Handoff) -> None:
        """Called after the peer's tokens were appended."""
        ...


class HoldingRouter(Router, Protocol):
    """A policy that takes back more than the sampled token. What it holds back, nobody is shown."""

    holds_back: bool
    """What this model samples stays uncommitted until the answer ends here or a peer has verified it."""

    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        """Asked when a token that is held back would end the answer: the model that goes on in its place,
        by a message that `send` makes; None commits all that is held."""
        ...

    def verify(self, step: StepBatch) -> IntArray:
        """int[B]: how many of each row's drafted tokens stay; all rows have a draft. Behind them comes this
        model's own token."""
        ...


class BaseRouter:
    """Defaults: start at the configured entry, stay, keep the token when sending, accept all."""

    needs = Needs()
    holds_back = False

    def __init__(self, place: Place) -> None:
        self.place = place

    def entry(self, request: Request) -> ModelIndex:
        return self.place.entry

    def route(self, step: StepBatch) -> IntArray:
        return np.full(len(step), LOCAL, dtype=np.int64)

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target)

    def receive(self, sequence: Sequence, handoff: Handoff) -> None:
        return None
