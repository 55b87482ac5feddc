"""What policies between one small and one large model share.

The small model starts. When it leaves it discards the token it just sampled, and the large model
writes that position; the large model keeps what it wrote when it hands back. Which models are the two
is an option, so that a pair can be picked out of a larger deployment. A signal that is no number
keeps a row on the small model and sends it back from the large one (algorithms: fall back, count).
"""

from __future__ import annotations

import numpy as np

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec, Request
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.policies.base import LOCAL, BaseRouter, Place
from router_backend.policies.options import Options
from router_backend.scheduler.batch import BoolArray, IntArray, Needs, StepBatch

PAIR_OPTIONS = ("small", "large")


class PairRouter(BaseRouter):
    """Subclasses say when the small model leaves and when the large one returns."""

    def __init__(self, place: Place, spec: PolicySpec, known: tuple[str, ...]) -> None:
        super().__init__(place)
        self.name = spec.name
        self.options = Options(spec, (*known, *PAIR_OPTIONS))
        names = place.models
        small = self.options.choice("small", names[0], names)
        large = self.options.choice("large", names[-1], names)
        if small == large:
            raise ConfigError(f"{spec.name}: needs two models, small and large are both {small!r}")
        self.small = ModelIndex(names.index(small))
        self.large = ModelIndex(names.index(large))
        self.is_small = place.model == self.small
        self._destination = place.destination(self.large if self.is_small else self.small)

    def entry(self, request: Request) -> ModelIndex:
        return self.small

    def route(self, step: StepBatch) -> IntArray:
        is_moving = self.leaves(step) if self.is_small else self.returns(step)
        return np.where(is_moving, self._destination, LOCAL)

    def leaves(self, step: StepBatch) -> BoolArray:
        """bool[B]: rows of the small model that the large one should write instead."""
        raise NotImplementedError

    def returns(self, step: StepBatch) -> BoolArray:
        """bool[B]: rows that the large model hands back."""
        raise NotImplementedError

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target, drop=int(self.is_small))


class OneTokenRouter(PairRouter):
    """The large model hands back after `k` tokens (default 1), whatever they are.

    The large side of CITER, R2R and Co-LLM: it reads no signal, so it needs none.
    """

    def __init__(self, place: Place, spec: PolicySpec, known: tuple[str, ...]) -> None:
        super().__init__(place, spec, (*known, "k"))
        self._k = self.options.count("k", 1)

    def asks(self, needs: Needs) -> None:
        """Declare what the small side reads."""
        self.needs = needs if self.is_small else Needs()

    def returns(self, step: StepBatch) -> BoolArray:
        return step.stay >= self._k


class HeadRouter(OneTokenRouter):
    """A small side that reads the score of a router head; `head` names its artefact.

    The cutoff is the request's, else the artefact's. A head that the small model's runner has not is
    refused on every model alike, so a request that could not be routed is never admitted.
    """

    def __init__(self, place: Place, spec: PolicySpec, known: tuple[str, ...]) -> None:
        super().__init__(place, spec, (*known, "head", "cutoff"))
        self.head = self.options.text("head", spec.name)
        loaded = place.heads.get(place.models[self.small], {})
        if self.head not in loaded:
            names = ", ".join(sorted(loaded)) or "none"
            where = place.models[self.small]
            raise ConfigError(f"{spec.name}.head: {self.head!r} is not loaded on {where}; loaded: {names}")
        self.cutoff = self.options.number("cutoff", loaded[self.head])
        self.asks(Needs(heads=(self.head,)))
