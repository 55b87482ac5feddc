"""What becomes of tokens that were sampled and not committed: held back here, or drafted by a peer.

A policy that holds back shows nobody its tokens until it commits them all at the end, discards them, or
hands them over as a draft. A model that is handed a draft verifies it in one step: it commits a beginning
of it, truncates the rest and writes the next token itself, so every verification makes progress. Every held
token is counted where it was sampled, as committed or as discarded, and once. Frees and sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router_backend.core.effects import Emit, Reason
from router_backend.core.errors import PolicyError
from router_backend.core.request import ModelIndex, RequestKey
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import DRAFT_MAX, Handoff
from router_backend.policies.base import LOCAL
from router_backend.scheduler.batch import StepBatch, StepOutput
from router_backend.scheduler.counters import Counters
from router_backend.scheduler.logprobs import Told, logprobs_instead
from router_backend.scheduler.outcome import Outcome, by_router, emit, end_at, faulty, livelocked
from router_backend.scheduler.settings import SchedulerSettings

Accepted = dict[RequestKey, tuple[Emit, ...]]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The sampling rows of a step: `picked[i]` is the entry of the output that belongs to `sequences[i]`."""

    sequences: list[Sequence]
    picked: list[int]
    tokens: list[int]
    told: list[Told]

    def only(self, rows: list[int]) -> Sampled:
        columns = (self.sequences, self.picked, self.tokens, self.told)
        return Sampled(*([column[row] for row in rows] for column in columns))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Drafts:
    settings: SchedulerSettings
    counters: Counters

    def hold(self, sequence: Sequence, destination: int | PolicyError, told: Told) -> Outcome:
        """The sequence's last token was sampled here and is held back."""
        sequence.held += 1
        sequence.told += told
        sequence.seen[sequence.model] = len(sequence.tokens)
        if isinstance(destination, PolicyError):
            return faulty(sequence, self.counters, destination)
        if not LOCAL <= destination <= len(self.settings.peers):
            return faulty(sequence, self.counters, f"route: answered {destination}, which is no peer")
        if destination != LOCAL:
            return self._hand_over(sequence, self.settings.peers[destination - 1])
        end = end_at(sequence, len(sequence.tokens))
        return Outcome(sequence) if end is None else self._at_end(sequence, end)

    def verify(self, rows: Sampled, output: StepOutput) -> tuple[Sampled, list[Outcome], Accepted]:
        """The rows that go on behind what was kept of their drafts; those that end; what was committed."""
        going = [row for row, sequence in enumerate(rows.sequences) if not sequence.draft]
        over: list[Outcome] = []
        accepted: Accepted = {}
        for row, count in self._counts(rows, output):
            sequence = rows.sequences[row]
            if isinstance(count, int) and count < sequence.draft:
                assert output.draft is not None
                entry = rows.picked[row]
                rows.tokens[row] = int(output.draft.tokens[entry, count])
                rows.told[row] = logprobs_instead(sequence, entry, count, output.draft)
            outcome = self._verified(sequence, count)
            if outcome.end is None:
                accepted[sequence.key] = outcome.emits
                going.append(row)
            else:
                # The model's own token comes behind an end, or behind a mistake.
                self.counters.discarded += 1
                over.append(outcome)
        return rows.only(sorted(going)), over, accepted

    def _counts(self, rows: Sampled, output: StepOutput) -> list[tuple[int, int | PolicyError]]:
        """(row, how much of its draft its policy keeps) of every row that has one."""
        drafted = [row for row, sequence in enumerate(rows.sequences) if sequence.draft]
        counts: list[tuple[int, int | PolicyError]] = []
        for group in by_router(rows.sequences, drafted):
            members = [rows.sequences[row] for row in group]
            index = np.array([rows.picked[row] for row in group], dtype=np.int64)
            step = StepBatch(self.settings.model, members, output, index)
            try:
                counts += zip(group, members[0].router.verify(step).tolist(), strict=True)
            except PolicyError as error:
                counts += [(row, error) for row in group]
            self.counters.unreadable_signals += step.num_unreadable
        return counts

    def _verified(self, sequence: Sequence, count: int | PolicyError) -> Outcome:
        """Commit the first `count` tokens of the draft, up to one that ends the answer; truncate the rest."""
        start, drafter = sequence.committed_len, sequence.drafter
        assert drafter is not None, f"{sequence.request_id}: a draft of nobody"
        kept = 0 if isinstance(count, PolicyError) else count
        ends = (end_at(sequence, length) for length in range(start + 1, start + kept + 1))
        found = next(((length, end) for length, end in enumerate(ends, start + 1) if end), None)
        length, end = found or (start + kept, None)
        sequence.truncate(length)
        told, sequence.told = tuple(sequence.told[: length - start]), []
        sequence.draft = 0
        sequence.seen = [min(seen, length) for seen in sequence.seen]
        if isinstance(count, PolicyError):
            return faulty(sequence, self.counters, count)
        return Outcome(sequence, (emit(sequence, start, drafter, told),) if length > start else (), end)

    def _at_end(self, sequence: Sequence, end: Reason) -> Outcome:
        """A token that is held back would end the answer: commit it all, or let another model go on."""
        try:
            target: ModelIndex | None = sequence.router.at_end(sequence)
        except PolicyError as error:
            return faulty(sequence, self.counters, error)
        if target is None:
            accepted = emit(sequence, sequence.committed_len, sequence.model, tuple(sequence.told))
            self.counters.committed += sequence.held
            sequence.held = 0
            return Outcome(sequence, (accepted,), end)
        if target not in self.settings.peers:
            return faulty(sequence, self.counters, f"at_end: answered {target}, which is no peer")
        return self._hand_over(sequence, target)

    def _hand_over(self, sequence: Sequence, target: ModelIndex) -> Outcome:
        """What is held back goes to `target` as a draft, as far as `send` does not drop it."""
        try:
            handoff: Handoff = sequence.router.send(sequence, target)
        except PolicyError as error:
            return faulty(sequence, self.counters, error)
        kept = handoff.provisional
        is_draft = handoff.target == target and handoff.committed_len == sequence.committed_len
        if not (is_draft and 0 <= kept <= min(sequence.held, DRAFT_MAX)):
            where = f"model {handoff.target} that ends at {handoff.loc}"
            what = f"send: made a message for {where} with a draft of {kept}"
            return faulty(sequence, self.counters, what)
        self.counters.discarded += sequence.held - kept
        sequence.truncate(handoff.loc)
        del sequence.told[kept:]
        sequence.held, sequence.attempt = kept, 0
        if sequence.raw_steps > DRAFT_MAX * sequence.request.raw_steps_max(self.settings.models):
            return livelocked(sequence)
        return Outcome(sequence, handoff=handoff)
