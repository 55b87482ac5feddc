"""Restores the order of an answer's tokens.

Commits reach the home from several subservers, in any order and perhaps twice. This owns which
position comes next; it never looks at text. Invariant: every position leaves exactly once, in order.
"""

from __future__ import annotations

from typing import NamedTuple

from router_backend.core.effects import Emit, TokenLogprobs
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex


class Committed(NamedTuple):
    """One token of the answer and the model that wrote it."""

    token_id: int
    model: ModelIndex
    logprobs: TokenLogprobs | None = None


class CommitOrder:
    """Tokens by position, for one request whose answer holds at most `length_max` tokens.

    `logprobs` is how many top tokens come with each one; None = no log-probabilities at all.
    """

    def __init__(self, length_max: int, logprobs: int | None = None) -> None:
        self.token_ids: list[int] = []
        """Tokens that left in order."""
        self._length_max = length_max
        self._logprobs = logprobs
        self._ahead: dict[int, Committed] = {}

    @property
    def length(self) -> int:
        """Tokens that left in order; the position of the next one."""
        return len(self.token_ids)

    @property
    def held(self) -> int:
        """Tokens that wait for an earlier one."""
        return len(self._ahead)

    def add(self, emit: Emit) -> list[Committed]:
        """The tokens that are next in order now; raises RemoteProtocolError for an impossible position and
        for log-probabilities that are not what the request asked for."""
        end = emit.position + len(emit.token_ids)
        if emit.position < 0 or end > self._length_max:
            raise RemoteProtocolError(
                f"tokens {emit.position}..{end} of request {emit.request_id} of {self._length_max} tokens"
            )
        self._check_logprobs(emit)
        for index, token_id in enumerate(emit.token_ids):
            if emit.position + index >= self.length:
                told = emit.logprobs[index] if emit.logprobs else None
                self._ahead.setdefault(emit.position + index, Committed(token_id, emit.model, told))
        return self._released()

    def _check_logprobs(self, emit: Emit) -> None:
        expected = 0 if self._logprobs is None else len(emit.token_ids)
        most = max((len(told.top) for told in emit.logprobs), default=0)
        if len(emit.logprobs) != expected or most > (self._logprobs or 0):
            raise RemoteProtocolError(
                f"{len(emit.logprobs)} log-probabilities with up to {most} top tokens for "
                f"{len(emit.token_ids)} tokens of request {emit.request_id}"
            )

    def drop_ahead(self) -> None:
        """Forget what waits for an earlier token: somebody else will write these positions."""
        self._ahead.clear()

    def _released(self) -> list[Committed]:
        tokens = []
        while self.length in self._ahead:
            tokens.append(self._ahead.pop(self.length))
            self.token_ids.append(tokens[-1].token_id)
        return tokens
