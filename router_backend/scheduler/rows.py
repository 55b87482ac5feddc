"""Turns the ready queue into the rows of one batch, with every block they need.

Rows are taken in the order in which they began to wait. Each gets as many tokens as the budget
allows after one for every row behind it, so a long prompt comes in chunks and never holds up decode
rows. When blocks run out, parked sequences lose their cache first (the cheapest to recompute), then
the ready ones that waited least.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from router_backend.core.sequence import Sequence
from router_backend.core.state import Event, State
from router_backend.scheduler.batch import Needs, Row
from router_backend.scheduler.roster import Roster


@dataclass(slots=True)
class RowBuilder:
    """Builds the batches of one roster."""

    roster: Roster

    def build(self) -> tuple[tuple[Row, ...], Needs]:
        """Rows in waiting order and what their policies need; moves their sequences to executing."""
        settings = self.roster.settings
        candidates = list(islice(self.roster.queues.ready.values(), settings.batch_max))
        budget = settings.batch_tokens_max
        rows: list[Row] = []
        needs = Needs()
        for behind, sequence in zip(range(len(candidates) - 1, -1, -1), candidates, strict=True):
            row = self._row(sequence, budget - behind)
            if row is None:
                break
            rows.append(row)
            budget -= len(row.token_ids)
            if row.is_sampling and sequence.router.needs != needs:
                needs = needs.union(sequence.router.needs)
        return tuple(rows), needs

    def _row(self, sequence: Sequence, tokens_max: int) -> Row | None:
        """The sequence's row of at most `tokens_max` tokens; None when there is no room for it now."""
        if not sequence.blocks:
            self._match_prefix(sequence)
        start = sequence.num_computed
        end = min(len(sequence.tokens), start + tokens_max)
        if not self._make_room(sequence, end):
            return None
        self.roster.kv.reserve(sequence, end)
        self._launch(sequence)
        return Row(
            sequence.request_id,
            sequence.tokens[start:end],
            start,
            sequence.blocks,
            end == len(sequence.tokens),
            sequence.request.sampling,
            sequence.attempt,
            sequence.tokens,
            sequence.request.prompt_len,
            sequence.request.stop_ids,
        )

    def _launch(self, sequence: Sequence) -> None:
        sequence.happen(Event.SCHEDULED)
        queues = self.roster.queues
        queues.executing[sequence.request_id] = queues.ready.pop(sequence.request_id)

    def _match_prefix(self, sequence: Sequence) -> None:
        counters = self.roster.counters
        counters.prefix_lookups += 1
        counters.prefix_lookups_on_return += sequence.sent is not None
        counters.prefix_hit_tokens += self.roster.kv.match_prefix(sequence)

    def _make_room(self, sequence: Sequence, length: int) -> bool:
        while not self.roster.kv.can_reserve(sequence, length):
            victim = self._cheapest_parked() or self._latest_ready(sequence)
            if victim is None:
                return False
            self._evict(victim)
        return True

    def _cheapest_parked(self) -> Sequence | None:
        holders = [sequence for sequence in self.roster.queues.parked.values() if sequence.blocks]
        return min(holders, key=lambda holder: (holder.num_computed, holder.arrival), default=None)

    def _latest_ready(self, sequence: Sequence) -> Sequence | None:
        for other in reversed(self.roster.queues.ready.values()):
            if other is sequence:
                return None
            if other.blocks:
                return other
        return None

    def _evict(self, victim: Sequence) -> None:
        counters = self.roster.counters
        counters.recomputed_tokens += self.roster.kv.release(victim)
        if victim.state is State.RUNNING:
            victim.happen(Event.PREEMPTED)
            counters.preemptions += 1
        else:
            counters.parked_evictions += victim.state is State.PENDING_RETURN
