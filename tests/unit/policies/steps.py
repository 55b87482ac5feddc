"""Steps with hand-written signals, for policies that read them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field

import numpy as np

from router_backend.core.request import ModelIndex, PolicySpec, Sampling
from router_backend.core.sequence import Sequence
from router_backend.policies.base import Place, Router
from router_backend.policies.registry import build
from router_backend.scheduler.batch import StepBatch, StepOutput
from tests.builders import NAMES, VOCAB, request

SMALL, LARGE, HUGE = ModelIndex(0), ModelIndex(1), ModelIndex(2)
NAN, INF = float("nan"), float("inf")


HEADS = {"citer": 0.9, "r2r": 0.5, "co_llm": 0.5, "mine": 0.2}
"""Cutoffs of the artefacts of every model."""


def place(model: int, models: int = 2, heads: Mapping[str, Mapping[str, float]] | None = None) -> Place:
    everywhere = dict.fromkeys(NAMES, HEADS)
    return Place(ModelIndex(model), NAMES[:models], SMALL, VOCAB, everywhere if heads is None else heads)


def policy(name: str, where: Place | int, **params: float | str) -> Router:
    """Policy `name` at a place, or on that model of two."""
    return build(PolicySpec(name, tuple(params.items())), place(where) if isinstance(where, int) else where)


@dataclass
class Rows:
    """One step; every signal that is given has one entry per row, integers default to the first step."""

    entropy: Sequences[float] | None = None
    max_prob: Sequences[float] | None = None
    scores: Mapping[str, Sequences[float]] = field(default_factory=dict)
    out_step: Sequences[int] = ()
    stay: Sequences[int] = ()
    seeds: Sequences[int] = ()
    model: int = 0

    def batch(self) -> StepBatch:
        columns = (self.entropy, self.max_prob, *self.scores.values(), self.out_step, self.stay, self.seeds)
        count = max(len(column or ()) for column in columns)
        output = StepOutput(
            np.zeros(count, dtype=np.int64),
            entropy=_signal(self.entropy),
            max_prob=_signal(self.max_prob),
            scores={head: np.array(score, dtype=np.float32) for head, score in self.scores.items()},
        )
        return StepBatch(ModelIndex(self.model), [self._sequence(row) for row in range(count)], output)

    def _sequence(self, row: int) -> Sequence:
        seed = self.seeds[row] if self.seeds else 0
        made = sequence(self.out_step[row] if self.out_step else 0, self.model, seed)
        made.stay = self.stay[row] if self.stay else 1
        return made


def sequence(out_step: int = 0, model: int = 0, seed: int = 0) -> Sequence:
    tokens = [1, 2, 3, *range(out_step)]
    asked = request(sampling=Sampling(seed=seed))
    return Sequence(asked, ModelIndex(model), 1, tokens, [len(tokens), 0, 0])


def _signal(values: Sequences[float] | None) -> np.ndarray | None:
    return None if values is None else np.array(values, dtype=np.float32)
