"""Co-LLM: the base model itself says when to defer, by one extra row of its output layer.

Source: arXiv:2403.03870 and its code, `collm/generate.py`: a probability strictly above eta is
replaced by one token of the reference model. Eta may fall from 1 to its value over the first steps of
the answer (no deferral at the start), so it depends on the index of the token in the answer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from router_backend.core.errors import ConfigError
from router_backend.core.request import PolicySpec
from router_backend.policies.base import Place
from router_backend.policies.pair import HeadRouter
from router_backend.scheduler.batch import BoolArray, IntArray, StepBatch

WARMUP_STEPS = 15
WARMUPS = ("constant", "linear", "cosine", "exponential")


def eta(out_step: IntArray, cutoff: float, warmup: str, warmup_steps: int) -> npt.NDArray[np.float64]:
    """float[B]: the limit for the tokens at `out_step` int[B] (0 = first of the answer)."""
    if warmup == "constant":
        return np.full(len(out_step), cutoff)
    share = np.minimum(out_step / warmup_steps, 1.0)
    if warmup == "linear":
        limits = 1.0 + (cutoff - 1.0) * share
    elif warmup == "cosine":
        limits = cutoff + (1.0 - cutoff) / 2.0 * (np.cos(np.pi * share) + 1.0)
    else:
        limits = cutoff**share
    return np.where(out_step < warmup_steps, limits, cutoff)


class CoLlm(HeadRouter):
    """Deferral probability > eta leaves. A constant cutoff below 0 always routes, of 1 never."""

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, ("warmup", "warmup_steps"))
        self._warmup = self.options.choice("warmup", "constant", WARMUPS)
        self._warmup_steps = self.options.count("warmup_steps", WARMUP_STEPS)
        is_finite_positive = 0 < self.cutoff < np.inf
        if self._warmup == "exponential" and not is_finite_positive:
            raise ConfigError(f"{spec.name}.cutoff: {self.cutoff} must be above 0 with exponential warm-up")

    def leaves(self, step: StepBatch) -> BoolArray:
        deferral = step.score(self.head)
        limits = eta(step.out_step, self.cutoff, self._warmup, self._warmup_steps)
        return step.readable(deferral) & (deferral > limits.astype(np.float32))
