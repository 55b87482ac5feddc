"""What a scheduler counts. Every number only grows; the shell exports them.

Invariant, at every moment: sampled == committed + discarded + what sequences hold back (`Sequence.held`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from router_backend.handoff.message import Handoff
from router_backend.scheduler.batch import LaunchReason


class Departure(str, Enum):
    """What became of the sampled token on which a policy handed off."""

    TOKEN_KEPT = "token_kept"
    TOKEN_DISCARDED = "token_discarded"


@dataclass(slots=True)
class Counters:
    sampled: int = 0
    committed: int = 0
    discarded: int = 0
    discarded_on_faults: int = 0
    """Of these, tokens of rows whose policy failed; the others were taken back."""
    handoffs_sent: int = 0
    departures: dict[tuple[int, Departure], int] = field(default_factory=dict)
    """Hand-offs sent, by target and by what became of the token that decided them."""
    handoffs_received: int = 0
    handoff_tokens: int = 0
    """Tokens received in hand-offs, first contacts included."""
    returns: int = 0
    """Hand-offs that found their sequence parked here."""
    direct_resumes: int = 0
    """Returns that only appended the peer's tokens to a cache that was still there."""
    recomputes: int = 0
    """Returns whose cache had been evicted."""
    recomputed_tokens: int = 0
    prefix_lookups: int = 0
    prefix_lookups_on_return: int = 0
    prefix_hit_tokens: int = 0
    forced_keeps: int = 0
    """Discards refused because every other model had discarded at that position already (R5)."""
    policy_faults: int = 0
    """Rows ended because their policy raised or answered nonsense."""
    unreadable_signals: int = 0
    """Rows whose policy fell back because a signal was NaN or infinite."""
    preemptions: int = 0
    parked_evictions: int = 0
    kv_stalls: int = 0
    """Times when nobody who was ready found room, broken by taking it from the parked."""
    stale_messages: int = 0
    duplicate_messages: int = 0
    nacks: int = 0
    threshold_changes: int = 0
    """Tables of thresholds that differ from the one before."""
    steps: int = 0
    batch_rows: int = 0
    batch_tokens: int = 0
    launches: dict[LaunchReason, int] = field(default_factory=lambda: dict.fromkeys(LaunchReason, 0))

    def note_departure(self, handoff: Handoff) -> None:
        self.handoffs_sent += 1
        what = handoff.target, Departure.TOKEN_DISCARDED if handoff.attempt else Departure.TOKEN_KEPT
        self.departures[what] = self.departures.get(what, 0) + 1
