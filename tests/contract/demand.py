"""What the exactness tests ask, of which models, in which deployment. Everything follows from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from python_backend.config import Deployment
from python_backend.loops.base import Ask
from tests import reference
from tests.contract.sequential import Referee
from tests.reference import Rule
from tests.source_tree import ROOT
from tests.tiny_models import TinyModel, frozen, tiny_model_dir

PROMPT_LEN_MAX = 400
MAX_TOKENS_MAX = 64
EDGES = ((1, 1), (1, MAX_TOKENS_MAX), (PROMPT_LEN_MAX, 1), (PROMPT_LEN_MAX, MAX_TOKENS_MAX))
"""(prompt length, max_tokens) that every drawn set begins with."""
POOL_TOKENS = 8192
CLEAR = 1e-4
"""A hundred times what float32 sums differ by between batches."""

Policy = tuple[str, dict[str, Any], Rule]


def never() -> Policy:
    return "fixed", {"mode": "never"}, Rule("never")


def always() -> Policy:
    """The large model writes every token, one per visit."""
    return "fixed", {"mode": "always"}, Rule("always")


def stitch(cutoff: float) -> Policy:
    return "r_stitch", {"cutoff": cutoff}, Rule(cutoff=cutoff)


@dataclass(frozen=True)
class Pair:
    """Two models, the ids that prompts are drawn from, and cutoffs low, middle, high."""

    small: Path
    large: Path
    words: range
    cutoffs: tuple[float, ...]
    dtype: str = "float64"

    @property
    def policies(self) -> list[Policy]:
        """Never, always, the large model to the end, and the cutoffs."""
        return [never(), always(), *map(stitch, (-1.0, *self.cutoffs))]

    @property
    def referee(self) -> Referee:
        return _referee(self)

    @property
    def tokenizer(self) -> Tokenizer:
        return _tokenizer(self.small)


@cache
def _referee(pair: Pair) -> Referee:
    small, large = (reference.load(path, getattr(torch, pair.dtype)) for path in (pair.small, pair.large))
    return Referee((small, large), end_ids(small) | end_ids(large))


def end_ids(model: PreTrainedModel) -> frozenset[int]:
    ids = model.generation_config.eos_token_id
    return frozenset(ids if isinstance(ids, list) else [ids])


@cache
def _tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


def demo_pair(dtype: str = "float64") -> Pair:
    folders = (ROOT / "model_repository" / name / "1" for name in ("small", "large"))
    return Pair(*folders, range(4, 128), (0.1, 0.35, 0.55), dtype)


def tiny_pair(small: str, large: str) -> Pair:
    """Random weights, one vocabulary, and end tokens of its own for each model."""
    dirs = (
        tiny_model_dir(TinyModel(small, seed=11, fields=frozen(eos_token_id=[1, 5, 6]))),
        tiny_model_dir(TinyModel(large, seed=12, fields=frozen(eos_token_id=[7, 8, 9, 10]))),
    )
    return Pair(*dirs, range(11, 97), (0.3, 0.45, 0.55))


@dataclass(frozen=True)
class Job:
    """One request."""

    prompt: tuple[int, ...]
    max_tokens: int
    policy: Policy
    is_streaming: bool

    @property
    def ask(self) -> Ask:
        name, params, _ = self.policy
        return Ask(
            input_ids=self.prompt,
            max_tokens=self.max_tokens,
            policy=name,
            policy_params=params,
            is_streaming=self.is_streaming,
        )


def drawn(pair: Pair, seed: int, count: int) -> list[Job]:
    """Prompt lengths 1..400 evenly in their logarithm, max_tokens 1..64, any policy, streamed or not."""
    rng = random.Random(seed)
    shapes = list(EDGES[:count])
    while len(shapes) < count:
        length = round(PROMPT_LEN_MAX ** rng.random())
        shapes.append((length, rng.randint(1, MAX_TOKENS_MAX)))
    return [
        Job(tuple(rng.choices(pair.words, k=n)), most, rng.choice(pair.policies), rng.random() < 0.5)
        for n, most in shapes
    ]


def deployment(pair: Pair, thresholds: tuple[int, int] = (1, 1), **model: Any) -> Deployment:
    dirs = (("small", pair.small), ("large", pair.large))
    base = {"dtype": pair.dtype, "kv_tokens": POOL_TOKENS, "batch_max": 16, **model}
    models = [
        {**base, "name": name, "model_dir": str(path), "threshold": threshold}
        for (name, path), threshold in zip(dirs, thresholds, strict=True)
    ]
    front = {"heartbeat_ms": 50, "peer_timeout_s": 20}
    return Deployment.model_validate({"models": models, "deadline_ms": 5, "front": front})
