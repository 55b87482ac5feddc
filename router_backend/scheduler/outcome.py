"""What became of one row of a step, and what every way of settling it says in the same words.

Decides nothing about models; knows when an answer is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Sequences
from typing import NamedTuple

from router_backend.core.effects import Emit, Reason
from router_backend.core.errors import PolicyError
from router_backend.core.request import ModelIndex
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff
from router_backend.scheduler.counters import Counters
from router_backend.scheduler.logprobs import Told


class Outcome(NamedTuple):
    """`emits` what was committed, in order; then an end, or a hand-off, or neither (stay)."""

    sequence: Sequence
    emits: tuple[Emit, ...] = ()
    end: Reason | None = None
    handoff: Handoff | None = None
    message: str = ""


def end_at(sequence: Sequence, length: int) -> Reason | None:
    """How an answer ends whose text is the first `length` tokens; None: it goes on."""
    request = sequence.request
    if sequence.tokens[length - 1] in request.stop_ids:
        return Reason.STOP
    return Reason.LENGTH if length - len(request.prompt) >= request.max_tokens else None


def emit(sequence: Sequence, position: int, model: ModelIndex, told: Told) -> Emit:
    """The sequence's tokens from absolute `position` on, by `model`, are committed now."""
    request = sequence.request
    token_ids = tuple(sequence.tokens[position:])
    start = position - request.prompt_len
    return Emit(request.home, request.request_id, request.epoch, start, token_ids, model, told)


def faulty(sequence: Sequence, counters: Counters, what: str | PolicyError) -> Outcome:
    """The end of a request by its policy's mistake; what becomes of the sampled token is the caller's."""
    counters.policy_faults += 1
    counters.discarded_on_faults += 1
    error = what if isinstance(what, PolicyError) else PolicyError(f"{sequence.request.policy.name}.{what}")
    return Outcome(sequence, end=Reason.ERROR, message=str(error))


def livelocked(sequence: Sequence) -> Outcome:
    """The end of a request that has used up its steps (R4)."""
    message = f"TR_LIVELOCK: {sequence.raw_steps} tokens sampled for {sequence.num_committed} kept"
    return Outcome(sequence, end=Reason.ERROR, message=message)


def by_router(sampled: Sequences[Sequence], rows: Iterable[int]) -> list[list[int]]:
    """`rows` of `sampled`, those of one policy together."""
    groups: dict[int, list[int]] = {}
    for row in rows:
        groups.setdefault(id(sampled[row].router), []).append(row)
    return list(groups.values())
