"""Models without weights: every token and every signal is a hash of where it stands.

A model's next token depends on the request's seed, on all tokens before it and on the model, so an
answer shows who wrote each token and on what. Pure functions; no state.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

ENTROPY_LEVELS = 8
"""Entropies are (k + 1/2) / 8 of the largest, so cutoffs of k / 8 are never close to one."""

EMPTY = 0
"""The context before the first token."""

_TAG_TOKEN, _TAG_END, _TAG_ENTROPY, _TAG_LOGPROB = 1, 2, 3, 4


def draw(*keys: int) -> int:
    """A whole number of 63 bits that looks random, from whole numbers of 64 bits."""
    digest = blake2b(struct.pack(f"<{len(keys)}q", *keys), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def extended(context: int, token_id: int) -> int:
    """The context after one more token: what a KV slot stands for."""
    return draw(context, token_id)


def context_of(token_ids: Iterable[int]) -> int:
    """The context after these tokens from the beginning."""
    context = EMPTY
    for token_id in token_ids:
        context = extended(context, token_id)
    return context


@dataclass(frozen=True, slots=True)
class Script:
    """`end_p` is the probability that a model writes `END_ID` at a position."""

    vocab_size: int = 97
    end_p: float = 0.0

    END_ID = 0

    def token(self, seed: int, context: int, model: int) -> int:
        """What `model` writes after `context`."""
        if draw(_TAG_END, seed, context, model) < self.end_p * 2.0**63:
            return self.END_ID
        return 1 + draw(_TAG_TOKEN, seed, context, model) % (self.vocab_size - 1)

    def logprob(self, context: int, model: int) -> float:
        """Of whatever `model` writes after `context`, in nats; exact in float32."""
        return -(draw(_TAG_LOGPROB, context, model) % 64) / 8

    def entropy(self, seed: int, position: int, model: int) -> float:
        """Of `model`'s distribution for the token at absolute `position`, in nats."""
        level = draw(_TAG_ENTROPY, seed, position, model) % ENTROPY_LEVELS
        return (level + 0.5) / ENTROPY_LEVELS * math.log(self.vocab_size)


SCRIPT = Script()
"""97 tokens, no end: answers have max_tokens."""
