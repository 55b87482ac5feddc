"""Scores of the demo pair: each model alone, routing by entropy, and routing at random.

Owns a plain, batched decode of both models that feeds every token to both, so that it needs no engine.
It must stay independent of the router's own code: it is the yardstick for it. Entropies are normalised:
divided by ln(vocabulary size), so that 0 is certain and 1 is a uniform guess.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, Qwen3ForCausalLM

from tools.demo_pair.task import Chains, IntArray
from tools.demo_pair.vocabulary import ANSWER_TOKENS, PROMPT_TOKENS, token_ids

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]

RANDOM_SEED = 22


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; shares are 0 to 1."""

    name: str
    exact_share: float
    routed_share: float


@dataclass(frozen=True, slots=True)
class Separation:
    """How well the small model's entropy tells its wrong tokens from its right ones.

    Measured on the right answers' prefixes. ``ranking`` is the chance that a wrong token has a higher
    entropy than a right one (the area under the ROC curve).
    """

    token_error: float
    entropy_wrong: float
    entropy_right: float
    ranking: float


class Choice(Protocol):
    """Decides, token by token, which rows the large model writes."""

    def choose(self, small_entropy: FloatArray, large_entropy: FloatArray) -> BoolArray:
        """Return True for the rows whose next token comes from the large model."""
        ...


class RandomShare:
    """Routes each token with a fixed chance; 0 is the small model alone and 1 the large one."""

    def __init__(self, share: float) -> None:
        """Start the random sequence."""
        self.share = share
        self.rng = np.random.default_rng(RANDOM_SEED)

    def choose(self, small_entropy: FloatArray, large_entropy: FloatArray) -> BoolArray:
        """Ignore the entropies."""
        return self.rng.random(len(small_entropy)) < self.share


class EntropyCutoff:
    """R-Stitch: an unsure small model's token is discarded and the large one writes it instead.

    The large model keeps its own token and hands back after the first one that it is sure of.
    """

    def __init__(self, cutoff: float) -> None:
        """Start with every row at the small model."""
        self.cutoff = cutoff
        self.at_large: BoolArray | None = None

    def choose(self, small_entropy: FloatArray, large_entropy: FloatArray) -> BoolArray:
        """Route the rows that the large model holds or that the small one is unsure of."""
        unsure: BoolArray = small_entropy > self.cutoff
        chosen = unsure if self.at_large is None else unsure | self.at_large
        self.at_large = chosen & (large_entropy > self.cutoff)
        return chosen


class Decoder:
    """One model with its KV cache, fed the same tokens as its peer."""

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        """Start with an empty cache."""
        self.model = model
        self.cache = DynamicCache(config=model.config)

    def feed(self, tokens: IntArray) -> tuple[IntArray, FloatArray]:
        """Feed [rows, new] tokens; return each row's best next token and normalised entropy."""
        with torch.inference_mode():
            output = self.model(input_ids=torch.from_numpy(tokens), cache=self.cache, logits_to_keep=1)
        logits = output.logits[:, -1]
        return logits.argmax(-1).numpy(), normalised_entropy(logits)


def normalised_entropy(logits: torch.Tensor) -> FloatArray:
    """Return the entropy of the last axis, divided by its highest possible value."""
    log_shares = logits.double().log_softmax(-1)
    entropy: FloatArray = -(log_shares.exp() * log_shares).sum(-1).numpy()
    return entropy / math.log(logits.shape[-1])


def score(name: str, pair: tuple[Qwen3ForCausalLM, ...], chains: Chains, choice: Choice) -> Row:
    """Decode every chain greedily under one choice and compare with the right answers."""
    small, large = (Decoder(model) for model in pair)
    expected = token_ids(chains)
    fed, answer, routed = expected[:, :PROMPT_TOKENS], [], []
    for _ in range(ANSWER_TOKENS):
        small_token, small_entropy = small.feed(fed)
        large_token, large_entropy = large.feed(fed)
        routed.append(choice.choose(small_entropy, large_entropy))
        answer.append(np.where(routed[-1], large_token, small_token))
        fed = answer[-1][:, None]
    exact = (np.stack(answer, axis=1) == expected[:, PROMPT_TOKENS:]).all(axis=1)
    return Row(name, float(exact.mean()), float(np.mean(routed)))


def score_table(
    pair: tuple[Qwen3ForCausalLM, ...], chains: Chains, cutoffs: Sequence[float]
) -> Iterator[Row]:
    """Yield the lines of the table: each cutoff is followed by random routing of the same share."""
    yield score("small alone", pair, chains, RandomShare(0.0))
    yield score("large alone", pair, chains, RandomShare(1.0))
    for cutoff in cutoffs:
        row = score(f"entropy > {cutoff:g}", pair, chains, EntropyCutoff(cutoff))
        yield row
        yield score("random, same share", pair, chains, RandomShare(row.routed_share))


def separation(model: Qwen3ForCausalLM, chains: Chains) -> Separation:
    """Measure one model on the prefixes of the right answers."""
    tokens = token_ids(chains)
    with torch.inference_mode():
        logits = model(input_ids=torch.from_numpy(tokens[:, :-1]), logits_to_keep=ANSWER_TOKENS).logits
    entropy = normalised_entropy(logits)
    wrong = logits.argmax(-1).numpy() != tokens[:, PROMPT_TOKENS:]
    return Separation(
        float(wrong.mean()),
        mean_or_zero(entropy[wrong]),
        mean_or_zero(entropy[~wrong]),
        ranking(entropy[wrong], entropy[~wrong]),
    )


def mean_or_zero(values: FloatArray) -> float:
    """Return the mean, or 0 of no values: a perfect model has no wrong token."""
    return float(values.mean()) if values.size else 0.0


def ranking(higher: FloatArray, lower: FloatArray) -> float:
    """Return how often a value of ``higher`` exceeds one of ``lower``; 1 when either is empty."""
    if not higher.size or not lower.size:
        return 1.0
    return float(np.searchsorted(np.sort(lower), higher).mean() / lower.size)
