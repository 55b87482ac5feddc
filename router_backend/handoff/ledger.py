"""What each model has seen of a request: the unseen suffix, duplicates, gaps.

The right to append is a token that exactly one model holds, and the ledger (`seen`) travels with it.
So a hand-off carries exactly the tokens its target lacks, also among three models, and every token
id goes to a given model at most once (R7).
"""

from __future__ import annotations

from enum import Enum

from router_backend.core.errors import LocalProtocolError
from router_backend.core.request import ModelIndex
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff


def handoff_to(sequence: Sequence, target: ModelIndex, drop: int = 0) -> Handoff:
    """The message that gives `target` every token it has not seen, less the last `drop` ones.

    What is held back here and not dropped travels as a draft. Raises LocalProtocolError unless `drop` is 0
    or 1, or at most what is held: other models hold the rest already (R9).
    """
    if not 0 <= drop <= max(1, sequence.held):
        raise LocalProtocolError(f"only the sampled token can be dropped, not {drop} tokens")
    loc = len(sequence.tokens) - drop
    base = sequence.seen[target]
    seen = list(sequence.seen)
    seen[target] = seen[sequence.model] = loc
    return Handoff(
        request_id=sequence.request_id,
        epoch=sequence.request.epoch,
        source=sequence.model,
        target=target,
        seq=sequence.last_seq + 1,
        base=base,
        token_ids=tuple(sequence.tokens[base:loc]),
        seen=tuple(seen),
        attempt=sequence.attempt + 1 if drop and not sequence.held else 0,
        raw_steps=sequence.raw_steps,
        request=sequence.request if base == 0 else None,
        sent_at=sequence.ready_at,
        provisional=max(0, sequence.held - drop),
        logprobs=tuple(sequence.told[: sequence.held - drop]) if sequence.told else (),
    )


class Arrival(Enum):
    """How an incoming hand-off relates to what is held."""

    NEXT = "next"
    DUPLICATE = "duplicate"
    GAP = "gap"


def classify(handoff: Handoff, last_seq: int, held: int) -> Arrival:
    """NEXT to accept, DUPLICATE to drop, GAP when tokens before `base` never arrived.

    `held` is how many tokens this model has of the request.
    """
    if handoff.seq <= last_seq:
        return Arrival.DUPLICATE
    return Arrival.GAP if handoff.base > held else Arrival.NEXT
