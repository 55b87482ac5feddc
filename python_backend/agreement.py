"""What all processes of one server must see alike.

Each process reads the same files and so comes to the same values; nothing of this travels. Owns no file
access: `roles.agreeing` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from python_backend.config import Deployment
from router_backend.core.request import ModelIndex
from router_backend.policies.base import Place
from router_backend.policies.registry import Factory, PolicyBook


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one deployment."""

    vocab_size: int
    """Ids below this mean the same to every model; the others are never sampled."""
    eos_ids: frozenset[int] = frozenset()
    """Of all models: any of them may end an answer."""
    heads: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By model: its router heads, with each artefact's cutoff."""
    policies: Mapping[str, Factory] = field(default_factory=dict)
    """The deployment's own policies, beside the built-in ones."""

    def book(self, deployment: Deployment, model: ModelIndex) -> PolicyBook:
        """The policies as model number `model` runs them."""
        entry = ModelIndex(deployment.entry_index)
        place = Place(model, deployment.names, entry, self.vocab_size, self.heads)
        return PolicyBook(place, own=self.policies)
