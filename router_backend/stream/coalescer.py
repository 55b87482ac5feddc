"""Gathers tokens into responses, because Triton's per-response cost is far above a token's.

The first text leaves at once, later text after so many tokens or so long, whichever comes first; how long
grows with the answer. Triton 2.51 takes every response and keeps it for a client that does not read, about
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


RESPONSES_PER_WAIT = 2000
"""After so many responses the wait for more text is twice the first one, after twice as many three times."""


class Coalescer:
    """What has been committed but not yet sent."""

    def __init__(self, flush_tokens: int, flush_s: float) -> None:
        self._flush_tokens = flush_tokens
        self._flush_s = flush_s
        self._texts: list[str] = []
        self._tokens: list[Committed] = []
        self._chars: list[int] = []
        self._since = 0.0
        self._is_first = True
        self._taken = 0

    def add(self, text: str, token: Committed, chars: int, now: float) -> None:
        """`text` is what may leave now; `chars` counts what the token itself stands for."""
        if not self._tokens:
            self._since = now
        self._tokens.append(token)
        self._chars.append(chars)
        self.add_text(text)

    def add_text(self, text: str) -> None:
        """Text of tokens that were added before."""
        if text:
            self._texts.append(text)

    def is_due(self, now: float) -> bool:
        """An empty text alone is worth a response only when many tokens stand behind it."""
        if len(self._tokens) >= self._flush_tokens:
            return bool(self._texts) or not self._is_first
        wait_s = self._flush_s * (1 + self._taken // RESPONSES_PER_WAIT)
        return bool(self._texts) and (self._is_first or now >= self._since + wait_s)

    def take(self) -> Bundle:
        """Everything that was added since the last take."""
        text = "".join(self._texts)
        token_ids = tuple(token.token_id for token in self._tokens)
        sources = tuple(token.model for token in self._tokens)
        chars = tuple(self._chars)
        logprobs = tuple(token.logprobs for token in self._tokens if token.logprobs is not None)
        self._texts.clear()
        self._tokens.clear()
        self._chars.clear()
        self._is_first = False
        self._taken += 1
        return Bundle(text, token_ids, sources, chars, logprobs)
