"""Gathers tokens into responses, because Triton's per-response cost is far above a token's.

Text leaves at once when the last response is long enough ago, else once it is or when so many tokens have
gathered: a slow answer is never held up, a fast one leaves in few responses. How long grows with the answer.
Triton 2.51 takes every response and keeps it for a client that does not read, about
a kilobyte each, and tells nobody: so what such a client can pile up there is bounded here.
Never drops and never reorders; whether a reader may be sent anything is `reader_credit`'s business.
"""

from __future__ import annotations

from typing import NamedTuple

from router_backend.core.effects import TokenLogprobs
from router_backend.core.request import ModelIndex
from router_backend.stream.commit_order import Committed


class Bundle(NamedTuple):
    """What leaves in one response."""

    text: str
    token_ids: tuple[int, ...]
    sources: tuple[ModelIndex, ...]
    chars: tuple[int, ...] = ()
    """Characters of the answer that each token is, held back or not."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token, or none at all."""


RESPONSES_PER_WAIT = 1500
"""After so many responses the time between two is twice the first one, after twice as many three times."""


class Coalescer:
    """What has been committed but not yet sent."""

    def __init__(self, flush_tokens: int, flush_s: float) -> None:
        self._flush_tokens = flush_tokens
        self._flush_s = flush_s
        self._texts: list[str] = []
        self._tokens: list[Committed] = []
        self._chars: list[int] = []
        self._taken_at = float("-inf")
        self._taken = 0

    def add(self, text: str, token: Committed, chars: int) -> None:
        """`text` is what may leave now; `chars` counts what the token itself stands for."""
        self._tokens.append(token)
        self._chars.append(chars)
        self.add_text(text)

    def add_text(self, text: str) -> None:
        """Text of tokens that were added before."""
        if text:
            self._texts.append(text)

    @property
    def due_at(self) -> float:
        """When what is here may leave; infinite for an empty text, which alone is worth a response only when
        many tokens stand behind it."""
        if len(self._tokens) >= self._flush_tokens and (self._texts or self._taken):
            return float("-inf")
        wait_s = self._flush_s * (1 + self._taken // RESPONSES_PER_WAIT)
        return self._taken_at + wait_s if self._texts else float("inf")

    def take(self, now: float) -> Bundle:
        """Everything that was added since the last take."""
        text = "".join(self._texts)
        token_ids = tuple(token.token_id for token in self._tokens)
        sources = tuple(token.model for token in self._tokens)
        chars = tuple(self._chars)
        logprobs = tuple(token.logprobs for token in self._tokens if token.logprobs is not None)
        self._texts.clear()
        self._tokens.clear()
        self._chars.clear()
        self._taken_at = now
        self._taken += 1
        return Bundle(text, token_ids, sources, chars, logprobs)
