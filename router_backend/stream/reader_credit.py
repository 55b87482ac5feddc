"""Bounds what a client that does not read can make us hold (F73).

While its unsent responses are at the limit the answer is gathered instead of sent, which costs no
more than the answer's own text; after `patience_s` of that the request is given up.
"""

from __future__ import annotations

from enum import Enum


class Credit(Enum):
    SEND = "send"
    HOLD = "hold"
    CANCEL = "cancel"


class ReaderCredit:
    """One client's credit."""

    def __init__(self, unsent_max: int, patience_s: float) -> None:
        self._unsent_max = unsent_max
        self._patience_s = patience_s
        self._slow_since: float | None = None

    def observe(self, unsent: int, now: float) -> Credit:
        """What to do with a reader that has `unsent` responses waiting."""
        if unsent < self._unsent_max:
            self._slow_since = None
            return Credit.SEND
        if self._slow_since is None:
            self._slow_since = now
        return Credit.CANCEL if now >= self._slow_since + self._patience_s else Credit.HOLD
