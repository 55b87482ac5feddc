"""A mixture of three real models, sampled: 20,000 draws follow the weighted sum of their distributions."""

from __future__ import annotations

import numpy as np
import torch

from python_backend.runner.torch_runner import signals
from python_backend.runner.torch_runner.sampler import sample
from router_backend.core.request import ModelIndex, PolicySpec, Sampling
from router_backend.policies.base import Place
from router_backend.policies.registry import build
from tests import reference
from tests.reference import Reader
from tests.tiny_models import TinyModel, tiny_model_dir
from tests.unit.runner.torch_runner.directories import row

DRAWS = 20_000
NAMES = ("small", "large", "huge")
WEIGHTS = (0.5, 0.3, 0.2)
PROMPT = [5, 17, 3, 44, 80]
MODELS = [TinyModel(family, seed) for seed, family in enumerate(("llama", "qwen2", "qwen3"), 31)]


def logits() -> list[torch.Tensor]:
    """[vocab] of each model after the prompt, flattened so that many tokens are likely."""
    models = [reference.load(tiny_model_dir(model), torch.float64) for model in MODELS]
    return [Reader(model).logits(PROMPT) / 3 for model in models]


def test_draws_of_a_mixture_follow_the_sum_of_the_models_distributions() -> None:
    place = Place(ModelIndex(0), NAMES, ModelIndex(0), 97)
    router = build(PolicySpec("mixture", tuple(zip(NAMES, WEIGHTS, strict=True))), place)
    authors = router.authors(range(DRAWS), len(PROMPT))  # type: ignore[attr-defined]
    counts = np.zeros(97)
    for model, own in enumerate(logits()):
        seeds = np.flatnonzero(authors == model).tolist()
        rows = [row(PROMPT, sampling=Sampling(temperature=1.0, seed=seed)) for seed in seeds]
        repeated = own.expand(len(rows), -1)
        tokens = sample(repeated, signals.log_probs(repeated), rows, ModelIndex(model))
        counts += np.bincount(tokens.numpy(), minlength=97)

    mixed = sum(w * own.softmax(-1).numpy() for w, own in zip(WEIGHTS, logits(), strict=True))
    slack = 4 * np.sqrt(mixed * (1 - mixed) / DRAWS) + 3 / DRAWS
    assert counts.sum() == DRAWS
    assert np.all(np.abs(counts / DRAWS - mixed) <= slack)
    assert 0.5 * np.abs(counts / DRAWS - mixed).sum() < 0.03
    assert (mixed > 0.005).sum() > 30, "too few likely tokens to say anything"
