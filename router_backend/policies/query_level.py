"""Query-level routing: one model writes the whole answer, picked from the prompt alone.

The baseline of token-level routing, in the manner of RouteLLM (arXiv:2406.18665: strong if its win
rate >= cutoff), with a local linear classifier on hashed n-grams of the prompt's token ids instead of
an external embedding. The weights are a parameter, so they travel with the policy.
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

CUTOFF = 0.5
NGRAM = 2
NGRAM_MAX = 8
FEATURE_TAG = 13


def prompt_features(prompt: tuple[int, ...], buckets: int, ngram: int) -> npt.NDArray[np.float64]:
    """float[buckets]: counts of the prompt's 1- to `ngram`-grams by hash bucket, scaled to length 1."""
    ids = np.array(prompt, dtype=np.int64)
    counts = np.zeros(buckets)
    for size in range(1, min(ngram, len(ids)) + 1):
        columns = [ids[start : len(ids) - size + 1 + start] for start in range(size)]
        hashed = (uniforms(*columns, FEATURE_TAG, size) * buckets).astype(np.int64)
        counts += np.bincount(hashed, minlength=buckets)
    scaled: npt.NDArray[np.float64] = counts / np.linalg.norm(counts)
    return scaled


class QueryLevel(BaseRouter):
    """`large` answers when sigmoid(weights . features + bias) >= cutoff, else `small`.

    `weights` is a text of comma-separated numbers, one per hash bucket.
    """

    def __init__(self, place: Place, spec: PolicySpec) -> None:
        super().__init__(place)
        options = Options(spec, ("weights", "bias", "cutoff", "ngram", "small", "large"))
        names = place.models
        self._small = ModelIndex(names.index(options.choice("small", names[0], names)))
        self._large = ModelIndex(names.index(options.choice("large", names[-1], names)))
        self._weights = _parsed(f"{spec.name}.weights", options.text("weights", ""))
        self._bias = options.number("bias", 0.0)
        self._cutoff = options.number("cutoff", CUTOFF)
        self._ngram = options.count("ngram", NGRAM)
        if self._ngram > NGRAM_MAX or not math.isfinite(self._bias):
            raise ConfigError(f"{spec.name}: ngram must be at most {NGRAM_MAX} and bias finite")

    def score(self, prompt: tuple[int, ...]) -> float:
        """How likely `prompt` needs the large model, from 0 to 1."""
        features = prompt_features(prompt, len(self._weights), self._ngram)
        logit = float(self._weights @ features) + self._bias
        return 0.5 * (1.0 + math.tanh(0.5 * logit))

    def entry(self, request: Request) -> ModelIndex:
        return self._large if self.score(request.prompt) >= self._cutoff else self._small


def _parsed(name: str, text: str) -> npt.NDArray[np.float64]:
    try:
        weights = np.array([float(part) for part in text.split(",")])
    except ValueError as error:
        raise ConfigError(f"{name}: must be numbers separated by commas ({error})") from error
    if not np.isfinite(weights).all():
        raise ConfigError(f"{name}: must be finite numbers")
    return weights
