"""CITER: the large model writes the tokens of which the small one's head is not confident.

Source: arXiv:2502.01976 and its code, `src/pipeline/token_route.py`: the small model samples, the head
scores the hidden state of the predicting position, and a score strictly below the cutoff is replaced
by one token of the large model, which never saw the discarded one.
"""

from __future__ import annotations

from router_backend.core.request import PolicySpec
from router_backend.policies.base import Place
from router_backend.policies.pair import HeadRouter
from router_backend.scheduler.batch import BoolArray, StepBatch


class Citer(HeadRouter):
    """Confidence < cutoff leaves. A cutoff above 1 always routes, of 0 never."""

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, ())

    def leaves(self, step: StepBatch) -> BoolArray:
        confidence = step.score(self.head)
        return step.readable(confidence) & (confidence < self.cutoff)
