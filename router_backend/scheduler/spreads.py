"""How what a scheduler did is distributed: waits, sizes of batches and of hand-offs.

Beside the sums of `Counters`. Seconds are differences of the times that the scheduler was told. Every number
only grows; the shell exports them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from router_backend.core.histogram import SECONDS, SIZES, Histogram
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff

CLOCKS_APART_S = 60.0
"""A hand-off that seems older, or to come from the future, was stamped by another host's clock."""

_seconds = partial(Histogram, SECONDS)
_sizes = partial(Histogram, SIZES)


class Wait(str, Enum):
    """What a sequence waited for in the ready queue."""

    NEW = "new"
    """The first step of a new request."""
    HANDOFF = "handoff"
    """The first step after a first contact."""
    RETURN = "return"
    """The first step after it came back."""


def _waits() -> dict[Wait, Histogram]:
    return {wait: _seconds() for wait in Wait}


@dataclass(slots=True)
class Spreads:
    """Of one model."""

    queue_wait_s: dict[Wait, Histogram] = field(default_factory=_waits)
    """From ready to the start of the step that wrote the next token."""
    delay_s: Histogram = field(default_factory=_seconds)
    """Per launch: how long the gate had held it though something was ready; 0 for most."""
    batch_rows: Histogram = field(default_factory=_sizes)
    batch_tokens: Histogram = field(default_factory=_sizes)
    handoff_tokens: Histogram = field(default_factory=_sizes)
    """Tokens in each message that was sent."""
    run_tokens: Histogram = field(default_factory=_sizes)
    """Tokens sampled here between an arrival and the next hand-off."""
    return_s: Histogram = field(default_factory=_seconds)
    """From hand-off to return."""
    transit_s: dict[int, Histogram] = field(default_factory=dict)
    """By source: from the end of the step that decided a hand-off until it was heard here."""

    def note_waits(self, launched: Iterable[Sequence], now: float) -> None:
        """`launched` sample a token in the step that starts now."""
        for sequence in launched:
            if not sequence.stay:
                self.queue_wait_s[_wait(sequence)].observe(now - sequence.ready_at)

    def note_departure(self, sequence: Sequence, handoff: Handoff) -> None:
        self.handoff_tokens.observe(len(handoff.token_ids))
        self.run_tokens.observe(sequence.stay)

    def note_transit(self, handoff: Handoff, now: float) -> None:
        transit_s = now - handoff.sent_at
        if 0.0 <= transit_s <= CLOCKS_APART_S:
            self.transit_s.setdefault(handoff.source, _seconds()).observe(transit_s)


def _wait(sequence: Sequence) -> Wait:
    if sequence.sent is not None:
        return Wait.RETURN
    return Wait.NEW if sequence.last_seq < 0 else Wait.HANDOFF
