"""Mixture-model-like ensemble (ME): every position has an author, drawn by weight, whatever the text.

Source: arXiv:2605.00419. Drawing a model and then its token draws from sum_i w_i p_i exactly, with
sampling; under greedy decoding it is a random choice among the models' own best tokens, not the best
token of the mixture. Nothing is ever discarded. The draw is keyed by (seed, position) and by nothing
that differs between models, so all of them agree on every author without a word.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from router_backend.core.counter_rng import uniforms
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec, Request
from router_backend.policies.base import BaseRouter, Place
from router_backend.policies.options import Options
from router_backend.scheduler.batch import IntArray, StepBatch

AUTHOR_TAG = 12
"""Tag of the draws that pick authors."""
SUM_ERROR_MAX = 1e-6


class Mixture(BaseRouter):
    """One parameter per model, by its name: its weight (default 0; all equal if none is given)."""

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place)
        weights = _weights(spec, place.models)
        self._cumulative = np.cumsum(weights)
        self._last = int(np.flatnonzero(weights)[-1])
        models = range(len(place.models))
        self._destinations = np.array([place.destination(ModelIndex(model)) for model in models])

    def authors(self, seeds: npt.ArrayLike, positions: npt.ArrayLike) -> IntArray:
        """int[B]: index of the model that writes absolute position `positions[i]` of seed `seeds[i]`."""
        draws = uniforms(seeds, positions, AUTHOR_TAG)
        return np.minimum(np.searchsorted(self._cumulative, draws, side="right"), self._last)

    def entry(self, request: Request) -> ModelIndex:
        return ModelIndex(int(self.authors(request.sampling.seed, request.prompt_len)[0]))

    def route(self, step: StepBatch) -> IntArray:
        """The author of the next position, after the sampled token, which is kept."""
        seeds = [sequence.request.sampling.seed for sequence in step.sequences]
        destinations: IntArray = self._destinations[self.authors(seeds, step.position + 1)]
        return destinations


def _weights(spec: PolicySpec, names: tuple[str, ...]) -> npt.NDArray[np.float64]:
    options = Options(spec, names)
    default = 0.0 if spec.params else 1.0 / len(names)
    weights = np.array([options.number(name, default) for name in names])
    for name, weight in zip(names, weights.tolist(), strict=True):
        if not (math.isfinite(weight) and weight >= 0):
            raise ConfigError(f"{spec.name}.{name}: weight {weight} must be finite and not negative")
    if abs(weights.sum() - 1.0) > SUM_ERROR_MAX:
        raise ConfigError(f"{spec.name}: the weights of {', '.join(names)} add up to {weights.sum()}, not 1")
    return weights
