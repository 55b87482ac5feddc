"""What becomes of each sampled token: committed here, handed over, or discarded.

Keeps the normative rules of the hand-off: the message's `loc` decides what is committed (R1), endings
are judged on committed tokens only (R2), a request that ends sends no work (R3), discards are bounded
per position (R5) and steps per request (R4). Frees nothing and sends nothing: outcomes say what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Sequences
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from router_backend.core.effects import Emit, Reason
from router_backend.core.errors import PolicyError
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.policies.base import LOCAL, Router
from router_backend.scheduler.batch import StepBatch, StepOutput
from router_backend.scheduler.counters import Counters
from router_backend.scheduler.logprobs import Told, logprobs_of
from router_backend.scheduler.settings import SchedulerSettings


class Outcome(NamedTuple):
    """`emit` if a token was committed; then an end, or a hand-off, or neither (stay)."""

    sequence: Sequence
    emit: Emit | None = None
    end: Reason | None = None
    handoff: Handoff | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Settlement:
    settings: SchedulerSettings
    counters: Counters

    def settle(self, sampled: list[Sequence], picked: list[int], output: StepOutput) -> Iterator[Outcome]:
        """Outcomes in row order; `picked[i]` is the entry of `output` that belongs to `sampled[i]`."""
        for sequence in sampled:
            sequence.stay += 1
            sequence.raw_steps += 1
        self.counters.sampled += len(sampled)
        entries = output.tokens.tolist()
        tokens = [entries[entry] for entry in picked]
        destinations = self._destinations(sampled, picked, output)
        logprobs = logprobs_of(sampled, picked, output)
        for sequence, token, destination, told in zip(sampled, tokens, destinations, logprobs, strict=True):
            sequence.tokens.append(token)
            if isinstance(destination, PolicyError):
                yield self._policy_fault(sequence, destination)
            elif destination == LOCAL:
                yield self._stay(sequence, token, told)
            else:
                yield self._leave(sequence, token, destination, told)

    def _destinations(
        self, sampled: list[Sequence], picked: list[int], output: StepOutput
    ) -> list[int | PolicyError]:
        """Each row's destination by its own policy, or that policy's fault.

        Rows of one policy are routed together.
        """
        groups: dict[int, list[int]] = {}
        for row, sequence in enumerate(sampled):
            groups.setdefault(id(sequence.router), []).append(row)
        destinations: list[int | PolicyError] = [LOCAL] * len(sampled)
        for rows in groups.values():
            members = [sampled[row] for row in rows]
            # Every numpy call counts here: a hand-off waits, and after a step the caches are cold.
            is_everybody = len(rows) == len(output.tokens)
            index = None if is_everybody else np.array([picked[row] for row in rows], dtype=np.int64)
            step = StepBatch(self.settings.model, members, output, index)
            for row, destination in zip(rows, self._routed(members[0].router, step), strict=True):
                destinations[row] = destination
        return destinations

    def _routed(self, router: Router, step: StepBatch) -> Sequences[int | PolicyError]:
        try:
            destinations: list[int] = router.route(step).tolist()
        except PolicyError as error:
            return [error] * len(step)
        self.counters.unreadable_signals += step.num_unreadable
        return destinations

    def _stay(self, sequence: Sequence, token: int, told: Told) -> Outcome:
        emit = self._commit(sequence, token, told)
        sequence.attempt = 0
        sequence.seen[sequence.model] = len(sequence.tokens)
        return Outcome(sequence, emit, self._end(sequence, token))

    def _leave(self, sequence: Sequence, token: int, destination: int, told: Told) -> Outcome:
        if not 1 <= destination <= len(self.settings.peers):
            return self._policy_fault(sequence, f"route: answered {destination}, which is no peer")
        target = self.settings.peers[destination - 1]
        try:
            handoff = sequence.router.send(sequence, target)
        except PolicyError as error:
            return self._policy_fault(sequence, error)
        dropped = len(sequence.tokens) - handoff.loc
        if handoff.target != target or dropped not in (0, 1):
            what = f"send: made a message for model {handoff.target} that ends at {handoff.loc}"
            return self._policy_fault(sequence, what)
        if dropped and sequence.attempt >= self.settings.models - 1:
            self.counters.forced_keeps += 1
            handoff, dropped = handoff_to(sequence, target), 0
        if dropped:
            return self._discard(sequence, handoff)
        emit = self._commit(sequence, token, told)
        end = self._end(sequence, token)
        return Outcome(sequence, emit, end, None if end else handoff)

    def _discard(self, sequence: Sequence, handoff: Handoff) -> Outcome:
        sequence.tokens.pop()
        self.counters.discarded += 1
        if sequence.raw_steps > sequence.request.raw_steps_max(self.settings.models):
            message = f"TR_LIVELOCK: {sequence.raw_steps} tokens sampled for {sequence.out_step} kept"
            return Outcome(sequence, end=Reason.ERROR, message=message)
        return Outcome(sequence, handoff=handoff)

    def _policy_fault(self, sequence: Sequence, what: str | PolicyError) -> Outcome:
        sequence.tokens.pop()
        self.counters.discarded += 1
        self.counters.discarded_on_faults += 1
        self.counters.policy_faults += 1
        name = sequence.request.policy.name
        error = what if isinstance(what, PolicyError) else PolicyError(f"{name}.{what}")
        return Outcome(sequence, end=Reason.ERROR, message=str(error))

    def _commit(self, sequence: Sequence, token: int, told: Told) -> Emit:
        """Count and announce the token that is now the sequence's last."""
        self.counters.committed += 1
        request = sequence.request
        position, model = sequence.out_step - 1, sequence.model
        return Emit(request.home, request.request_id, request.epoch, position, (token,), model, told)

    def _end(self, sequence: Sequence, token: int) -> Reason | None:
        if token in sequence.request.stop_ids:
            return Reason.STOP
        return Reason.LENGTH if sequence.out_step >= sequence.request.max_tokens else None
