"""R-Stitch: leave the small model when it is uncertain, come back when the large one is certain.

Source: arXiv:2507.17307 v3; the signal is entropy over the full vocabulary divided by ln V, at
temperature 1. The small model's uncertain token is discarded and the large model writes that
position. The large model keeps its certain token: dropping it, as a literal reading of "identical
but <=" would have it, livelocks (the small model is uncertain at the same position again).
"""

from __future__ import annotations

import math

import numpy as np

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.policies.base import BaseRouter, Place
from router_backend.policies.options import Options
from router_backend.scheduler.batch import IntArray, Needs, StepBatch

CUTOFF = 0.03
"""Default, normalised: the value of arXiv:2610.12242, section 5."""


def cutoff_in_nats(cutoff: float, unit: str, vocab_size: int) -> float:
    """`cutoff` in `unit` (normalized = share of ln V, nats, bits) as nats."""
    return cutoff * {"normalized": math.log(vocab_size), "nats": 1.0, "bits": math.log(2.0)}[unit]


class RStitch(BaseRouter):
    """One class for both sides; model 0 is the small one. A cutoff below 0 always routes, above 1 never."""

    needs = Needs(entropy=True)

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place)
        if len(place.models) != 2:
            raise ConfigError(f"r_stitch: needs exactly 2 models, this deployment has {len(place.models)}")
        options = Options(spec, ("cutoff", "unit"))
        unit = options.choice("unit", "normalized", ("normalized", "nats", "bits"))
        self._cutoff_nats = cutoff_in_nats(options.number("cutoff", CUTOFF), unit, place.vocab_size)
        self._is_small = place.model == 0

    def route(self, step: StepBatch) -> IntArray:
        # NaN compares false: an uncertain reading keeps a row on the small model and sends it back
        # from the large one, so that one sick row can never be stuck.
        entropy = step.entropy
        is_uncertain = step.readable(entropy) & (entropy > self._cutoff_nats)
        leaves: IntArray = (is_uncertain if self._is_small else ~is_uncertain).astype(np.int64)
        return leaves  # peer 1, or LOCAL

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target, drop=int(self._is_small))
