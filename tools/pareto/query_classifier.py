"""The classifier of query-level routing: does the small model get this prompt wrong?

A linear one on the features that the policy `query_level` computes, fitted by ridge-regularised logistic
regression on prompts that are not asked again; so the baseline knows as much as can be known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from router_backend.policies.query_level import prompt_features

BUCKETS = 1024
NGRAM = 2
RIDGE = 1e-3
ITERATIONS = 25
"""Newton's steps: the loss is convex and smooth, ten are enough."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class QueryClassifier:
    weights: FloatArray
    bias: float

    def options(self, cutoff: float) -> dict[str, float | str]:
        """What a request says to be routed by it."""
        text = ",".join(f"{weight:.4g}" for weight in self.weights)
        return {"weights": text, "bias": self.bias, "cutoff": cutoff, "ngram": NGRAM}

    def scores(self, prompts: Sequence[tuple[int, ...]]) -> FloatArray:
        """float[prompts] from 0 to 1."""
        return _sigmoid(_features(prompts) @ self.weights + self.bias)

    def cutoffs(self, prompts: Sequence[tuple[int, ...]], shares: Sequence[float]) -> list[float]:
        """For each share, the cutoff above which that part of the prompts lies."""
        scores = self.scores(prompts)
        return [float(np.quantile(scores, 1.0 - share)) for share in shares]


def fitted(prompts: Sequence[tuple[int, ...]], is_wrong: Sequence[bool]) -> QueryClassifier:
    """`is_wrong` tells which prompts the small model answered wrong."""
    x = np.column_stack([_features(prompts), np.ones(len(prompts))])
    y = np.array(is_wrong, dtype=np.float64)
    theta = np.zeros(x.shape[1])
    ridge = RIDGE * np.eye(len(theta))
    for _ in range(ITERATIONS):
        chance = _sigmoid(x @ theta)
        slope = x.T @ (chance - y) / len(y) + ridge @ theta
        curvature = (x.T * (chance * (1.0 - chance))) @ x / len(y) + ridge
        theta -= np.linalg.solve(curvature, slope)
    return QueryClassifier(theta[:-1], float(theta[-1]))


def _features(prompts: Sequence[tuple[int, ...]]) -> FloatArray:
    return np.stack([prompt_features(prompt, BUCKETS, NGRAM) for prompt in prompts])


def _sigmoid(logits: FloatArray) -> FloatArray:
    return 0.5 * (1.0 + np.tanh(0.5 * logits))
