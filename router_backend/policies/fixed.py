"""Routing that ignores the numbers: never, always, or every k-th token.

The baselines (one model alone) and the extremes that every other policy is tested against.
"""

from __future__ import annotations

import numpy as np

from router_backend.core.request import ModelIndex, PolicySpec, Request
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.policies.base import LOCAL, BaseRouter, Place
from router_backend.policies.options import Options
from router_backend.scheduler.batch import IntArray, StepBatch


class Fixed(BaseRouter):
    """`entry` writes; with mode `always` (or `every` with k) model `to` writes every (k-th) token instead.

    The entry model's own token is discarded then, and the other model hands back after one token, like
    the one-token oracles of R2R, CITER and Co-LLM with a constant answer.
    """

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place)
        options = Options(spec, ("mode", "entry", "to", "k"))
        names = place.models
        mode = options.choice("mode", "never", ("never", "always", "every"))
        self._entry = ModelIndex(names.index(options.choice("entry", names[place.entry], names)))
        self._to = ModelIndex(names.index(options.choice("to", names[-1], names)))
        self._period = {"never": 0, "always": 1, "every": options.count("k", 2)}[mode]

    def entry(self, request: Request) -> ModelIndex:
        return self._entry

    def route(self, step: StepBatch) -> IntArray:
        if self.place.model != self._entry:
            return np.full(len(step), self.place.destination(self._entry), dtype=np.int64)
        if self._period == 0 or self._to == self._entry:
            return np.full(len(step), LOCAL, dtype=np.int64)
        leaves = (step.out_step + 1) % self._period == 0
        return np.where(leaves, self.place.destination(self._to), LOCAL)

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target, drop=int(self.place.model == self._entry))
