"""Cascade: each model answers, and the next larger one answers from scratch where it was not sure enough.

Source: FrugalGPT (arXiv:2305.05176): a score strictly below the cutoff passes the query on. The score
here is the answer's own likelihood instead of a trained scorer: the geometric mean of its tokens'
probabilities (arXiv:2404.10136 compares such scores). Nobody is shown a token of a level before the level
is accepted; the last level is always accepted, so its tokens leave as they are written.
"""

from __future__ import annotations

import math

import numpy as np

from router_backend.core.request import ModelIndex, PolicySpec, Request
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.policies.base import LOCAL, BaseRouter, Place
from router_backend.policies.options import Options
from router_backend.scheduler.batch import IntArray, StepBatch

CUTOFF = 0.5
LOGPROB_KEY, COUNT_KEY = "logprob", "count"


class Cascade(BaseRouter):
    """Levels are the models in deployment order. A cutoff of 0 never passes on, above 1 always."""

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place)
        self._cutoff = Options(spec, ("cutoff",)).number("cutoff", CUTOFF)
        self.holds_back = place.model < len(place.models) - 1

    def entry(self, request: Request) -> ModelIndex:
        return ModelIndex(0)

    def route(self, step: StepBatch) -> IntArray:
        """Stays, and adds up the likelihood; a token without a readable one counts for nothing."""
        if self.holds_back:
            logprobs = step.logprobs
            is_readable = step.readable(logprobs).tolist()
            for sequence, logprob, counts in zip(
                step.sequences, logprobs.tolist(), is_readable, strict=True
            ):
                if counts:
                    notes = sequence.scratch
                    notes[LOGPROB_KEY] = notes.get(LOGPROB_KEY, 0.0) + logprob
                    notes[COUNT_KEY] = notes.get(COUNT_KEY, 0) + 1
        return np.full(len(step), LOCAL, dtype=np.int64)

    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        """The next level; None accepts the answer, also one of which nothing could be read."""
        return ModelIndex(self.place.model + 1) if score(sequence) < self._cutoff else None

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target, drop=sequence.held)


def score(sequence: Sequence) -> float:
    """Geometric mean of the probabilities of the answer's tokens; infinity if none could be read."""
    count = sequence.scratch.get(COUNT_KEY, 0)
    return math.exp(sequence.scratch[LOGPROB_KEY] / count) if count else math.inf
