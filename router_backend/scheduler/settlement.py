"""What becomes of each sampled token: committed here, handed over, or discarded.

Keeps the normative rules of the hand-off: the message's `loc` decides what is committed (R1), endings
are judged on committed tokens only (R2), a request that ends sends no work (R3), discards are bounded
per position (R5) and steps per request (R4). What a policy holds back, or a peer has drafted, is settled
in `scheduler/drafts.py`. Frees nothing and sends nothing: outcomes say what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Sequences
from dataclasses import dataclass

import numpy as np

from router_backend.core.effects import Emit
from router_backend.core.errors import PolicyError
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.policies.base import LOCAL, Router
from router_backend.scheduler.batch import StepBatch, StepOutput
from router_backend.scheduler.counters import Counters
from router_backend.scheduler.drafts import Drafts, Sampled
from router_backend.scheduler.logprobs import Told, logprobs_of
from router_backend.scheduler.outcome import Outcome, by_router, end_at, faulty, livelocked
from router_backend.scheduler.settings import SchedulerSettings


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
        told = logprobs_of(sampled, picked, output)
        rows = Sampled(sampled, picked, [entries[entry] for entry in picked], told)
        if output.draft is None:
            yield from self._settled(rows, output)
            return
        going, over, accepted = self._drafts.verify(rows, output)
        yield from over
        for outcome in self._settled(going, output):
            first = accepted.get(outcome.sequence.key, ())
            yield outcome._replace(emits=(*first, *outcome.emits))

    @property
    def _drafts(self) -> Drafts:
        return Drafts(self.settings, self.counters)

    def _settled(self, rows: Sampled, output: StepOutput) -> Iterator[Outcome]:
        destinations = self._destinations(rows, output)
        columns = (rows.sequences, rows.tokens, destinations, rows.told)
        for sequence, token, destination, told in zip(*columns, strict=True):
            sequence.tokens.append(token)
            if sequence.router.holds_back:
                yield self._drafts.hold(sequence, destination, told)
            elif isinstance(destination, PolicyError):
                yield self._policy_fault(sequence, destination)
            elif destination == LOCAL:
                yield self._stay(sequence, token, told)
            else:
                yield self._leave(sequence, token, destination, told)

    def _destinations(self, rows: Sampled, output: StepOutput) -> list[int | PolicyError]:
        """Each row's destination by its own policy, or that policy's fault.

        Rows of one policy are routed together.
        """
        sampled, picked = rows.sequences, rows.picked
        destinations: list[int | PolicyError] = [LOCAL] * len(sampled)
        for group in by_router(sampled, range(len(sampled))):
            members = [sampled[row] for row in group]
            # Every numpy call counts here: a hand-off waits, and after a step the caches are cold.
            is_everybody = len(group) == len(output.tokens)
            index = None if is_everybody else np.array([picked[row] for row in group], dtype=np.int64)
            step = StepBatch(self.settings.model, members, output, index)
            for row, destination in zip(group, self._routed(members[0].router, step), strict=True):
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
        emits = self._commit(sequence, token, told)
        sequence.attempt = 0
        sequence.seen[sequence.model] = len(sequence.tokens)
        return Outcome(sequence, emits, end_at(sequence, len(sequence.tokens)))

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
        emits = self._commit(sequence, token, told)
        end = end_at(sequence, len(sequence.tokens))
        return Outcome(sequence, emits, end, None if end else handoff)

    def _discard(self, sequence: Sequence, handoff: Handoff) -> Outcome:
        sequence.tokens.pop()
        self.counters.discarded += 1
        if sequence.raw_steps > sequence.request.raw_steps_max(self.settings.models):
            return livelocked(sequence)
        return Outcome(sequence, handoff=handoff)

    def _policy_fault(self, sequence: Sequence, what: str | PolicyError) -> Outcome:
        sequence.tokens.pop()
        self.counters.discarded += 1
        return faulty(sequence, self.counters, what)

    def _commit(self, sequence: Sequence, token: int, told: Told) -> tuple[Emit, ...]:
        """Count and announce the token that is now the sequence's last."""
        self.counters.committed += 1
        request, model = sequence.request, sequence.model
        position = sequence.out_step - 1
        return (Emit(request.home, request.request_id, request.epoch, position, (token,), model, told),)
