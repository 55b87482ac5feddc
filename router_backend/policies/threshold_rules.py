"""Rules on one number per token, without any trained part.

Each names its source for operator and return rule. `rolling_entropy` keeps its window per request (in
`Sequence.scratch`), never per batch: published window rules share one state among all rows of a
batch and so answer differently in company than alone.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from router_backend.core.errors import ConfigError
from router_backend.core.request import PolicySpec
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff
from router_backend.policies.base import Place
from router_backend.policies.pair import OneTokenRouter, PairRouter
from router_backend.policies.r_stitch import cutoff_in_nats
from router_backend.scheduler.batch import BoolArray, Needs, StepBatch

UNITS = ("normalized", "nats", "bits")
RANDOM_TAG = 11
"""Tag of the draws of `random`."""
MAX_PROB_CUTOFF = 0.6
ENTROPY_CUTOFF_NATS = 0.45
NO_LIMIT = 2**31
WINDOW_KEY = "entropies"


class MaxProb(PairRouter):
    """Small leaves when its largest probability < cutoff; large returns when its own is >= cutoff.

    The rule of R-Stitch's first versions (arXiv:2507.17307 v1, v2). A cutoff above 1 always routes.
    """

    needs = Needs(max_prob=True)

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, ("cutoff",))
        self._cutoff = self.options.number("cutoff", MAX_PROB_CUTOFF)

    def leaves(self, step: StepBatch) -> BoolArray:
        return step.readable(step.max_prob) & (step.max_prob < self._cutoff)

    def returns(self, step: StepBatch) -> BoolArray:
        return ~step.readable(step.max_prob) | (step.max_prob >= self._cutoff)


class Entropy(OneTokenRouter):
    """Small leaves when its entropy >= cutoff, for `k` tokens of the large model.

    R2R's rule (`r2r/utils/switching.py`: below the cutoff stays), its default 0.45 nats. A cutoff
    below 0 always routes.
    """

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, ("cutoff", "unit"))
        unit = self.options.choice("unit", "nats", UNITS)
        cutoff = self.options.number("cutoff", ENTROPY_CUTOFF_NATS)
        self._cutoff_nats = cutoff_in_nats(cutoff, unit, place.vocab_size)
        self.asks(Needs(entropy=True))

    def leaves(self, step: StepBatch) -> BoolArray:
        return step.readable(step.entropy) & (step.entropy >= self._cutoff_nats)


class Random(OneTokenRouter):
    """Small leaves with probability `p`, for `k` tokens: what a signal must beat at equal share."""

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place, spec, ("p",))
        self._p = self.options.number("p", 0.5)
        if not 0 <= self._p <= 1:
            raise ConfigError(f"{spec.name}.p: {self._p} is not a probability from 0 to 1")

    def leaves(self, step: StepBatch) -> BoolArray:
        return step.uniform(RANDOM_TAG) < self._p


class RollingEntropy(PairRouter):
    """The mean of the last `window` entropies read here since the last arrival, with hysteresis.

    Small leaves above `cutoff`; large returns at or below `return_cutoff` (default: the same, never
    above it). Both stay at least `min_stay` tokens; the large one returns after `max_stay` in any case.
    A reading that is no number is left out of the window.
    """

    needs = Needs(entropy=True)

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        known = ("cutoff", "return_cutoff", "unit", "window", "min_stay", "max_stay")
        super().__init__(place, spec, known)
        options = self.options
        unit = options.choice("unit", "nats", UNITS)
        leave = options.number("cutoff", ENTROPY_CUTOFF_NATS)
        back = options.number("return_cutoff", leave)
        if back > leave:
            raise ConfigError(f"{spec.name}.return_cutoff: {back} is above cutoff {leave}")
        self._leave_nats = cutoff_in_nats(leave, unit, place.vocab_size)
        self._return_nats = cutoff_in_nats(back, unit, place.vocab_size)
        self._window = options.count("window", 3)
        self._min_stay = options.count("min_stay", 1)
        self._max_stay = options.count("max_stay", NO_LIMIT)
        if self._min_stay > self._max_stay:
            raise ConfigError(f"{spec.name}.min_stay: {self._min_stay} is above max_stay {self._max_stay}")

    def leaves(self, step: StepBatch) -> BoolArray:
        is_high = self._means(step) > self._leave_nats
        return step.readable(step.entropy) & is_high & (step.stay >= self._min_stay)

    def returns(self, step: StepBatch) -> BoolArray:
        is_low = self._means(step) <= self._return_nats
        stay = step.stay
        may_return = ~step.readable(step.entropy) | (is_low & (stay >= self._min_stay))
        return may_return | (stay >= self._max_stay)

    def receive(self, sequence: Sequence, handoff: Handoff) -> None:
        """Readings from before the peer wrote say nothing about what comes now."""
        sequence.scratch.pop(WINDOW_KEY, None)

    def _means(self, step: StepBatch) -> npt.NDArray[np.float64]:
        """float[B], nats: the windows' means with this step's readings; NaN where there is none."""
        entropy = step.entropy
        means = np.full(len(step), np.nan)
        readings = zip(step.sequences, entropy.tolist(), np.isfinite(entropy).tolist(), strict=True)
        for row, (sequence, value, is_finite) in enumerate(readings):
            window = sequence.scratch.setdefault(WINDOW_KEY, deque(maxlen=self._window))
            if is_finite:
                window.append(value)
            if window:
                means[row] = sum(window) / len(window)
        return means
