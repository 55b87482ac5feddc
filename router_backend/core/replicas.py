"""The subservers of a deployment: one for each model, or several replicas of one.

A policy routes a request to models. Which replica of a model serves it is settled once in each life of the
request, because its KV cache stays there. The invariant: the first replica of every model comes first, in
deployment order, so without further ones a subserver's number is its model's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NewType

from router_backend.core.request import ModelIndex, RequestId

ReplicaIndex = NewType("ReplicaIndex", int)
"""Number of a subserver among all of the deployment."""

NOWHERE = ReplicaIndex(-1)
"""No replica of the model holds the request yet."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """`counts[m]` subservers serve model m, at least one."""

    counts: tuple[int, ...]
    models: tuple[ModelIndex, ...] = field(init=False)
    """The model of every subserver, by its number."""

    def __post_init__(self) -> None:
        assert self.counts and min(self.counts) >= 1, f"{self.counts} replicas"
        firsts = list(range(len(self.counts)))
        others = [model for model, count in enumerate(self.counts) for _ in range(count - 1)]
        object.__setattr__(self, "models", tuple(map(ModelIndex, firsts + others)))

    def __len__(self) -> int:
        """How many subservers there are."""
        return len(self.models)

    @property
    def is_single(self) -> bool:
        """Every model has one replica."""
        return len(self.models) == len(self.counts)

    def of(self, model: int) -> tuple[ReplicaIndex, ...]:
        """The subservers of a model, the first one in front."""
        return tuple(ReplicaIndex(number) for number, found in enumerate(self.models) if found == model)


def least_loaded(
    candidates: Collection[ReplicaIndex], load: Sequence[int], request_id: RequestId
) -> ReplicaIndex | None:
    """Of `candidates` the one with the least `load` (by replica); None of none.

    Among equals the request's id decides, so that they are taken in turn and every run decides alike.
    """
    if not candidates:
        return None
    turn = blake2b(request_id.encode(), digest_size=1).digest()[0] % len(candidates)
    turned = [*candidates][turn:] + [*candidates][:turn]
    return min(turned, key=lambda replica: load[replica])
