"""R2R: the large model writes the tokens at which the small one would diverge in meaning.

Source: arXiv:2505.21600 and its code, `r2r/utils/switching.py` and `r2r/models/router.py`: the head
reads hidden state, sampled token and the largest logits; a probability at or above the cutoff is
replaced by one token of the large model.
"""

from __future__ import annotations

from router_backend.core.request import PolicySpec
from router_backend.policies.base import Place
from router_backend.policies.pair import HeadRouter
from router_backend.scheduler.batch import BoolArray, StepBatch


class R2R(HeadRouter):
    """Probability >= cutoff leaves. A cutoff of 0 always routes, above 1 never."""

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, ())

    def leaves(self, step: StepBatch) -> BoolArray:
        divergence = step.score(self.head)
        return step.readable(divergence) & (divergence >= self.cutoff)
