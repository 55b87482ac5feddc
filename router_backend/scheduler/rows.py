"""Turns the ready queue into the rows of one batch, with every block they need.

Rows are taken in the order in which they began to wait. Each gets as many tokens as the budget
allows after one for every row behind it, so a long prompt comes in chunks and never holds up decode
rows. Who finds no room waits while the others run; and until there is room for the first that waits without
a cache, no other one begins, or short ones would keep a long one out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from router_backend.core.sequence import Sequence
from router_backend.core.state import Event
from router_backend.scheduler.batch import Needs, Row
from router_backend.scheduler.pressure import KvPressure
from router_backend.scheduler.roster import Roster


@dataclass(slots=True)
class RowBuilder:
    """Builds the batches of one roster."""

    roster: Roster
    pressure: KvPressure = field(init=False)

    def __post_init__(self) -> None:
        self.pressure = KvPressure(self.roster)

    def build(self) -> tuple[tuple[Row, ...], Needs]:
        """Rows in waiting order and what their policies need; moves their sequences to executing.

        At least one row if anybody is ready.
        """
        ready = self.roster.queues.ready
        rows = self._rows(list(ready.values()))
        if not rows and ready:
            rows = self._rows([self.pressure.free_for_oldest()])
        return tuple(rows), self._needs(rows)

    def _rows(self, ready: list[Sequence]) -> list[Row]:
        settings = self.roster.settings
        budget, behind = settings.batch_tokens_max, min(len(ready), settings.batch_max)
        rows: list[Row] = []
        is_closed = False
        for sequence in ready:
            if not behind or not budget:
                break
            is_beginning = not sequence.blocks
            if is_beginning and is_closed:
                continue
            tokens_max = budget - behind + 1
            if tokens_max <= sequence.draft:
                # A draft is verified in one piece, if need be out of what was meant for the rows behind.
                tokens_max = min(budget, sequence.draft + 1)
            row = self._row(sequence, tokens_max)
            if row is None:
                is_closed |= is_beginning
                continue
            rows.append(row)
            behind -= 1
            budget -= len(row.token_ids)
        return rows

    def _needs(self, rows: Iterable[Row]) -> Needs:
        needs, seen = Needs(), None
        # Nothing else executes while a batch is built, so both are in the same order.
        for row, sequence in zip(rows, self.roster.queues.executing.values(), strict=True):
            if row.is_sampling and sequence.router is not seen:
                seen = sequence.router
                needs = needs.union(seen.needs)
        return needs

    def _row(self, sequence: Sequence, tokens_max: int) -> Row | None:
        """The sequence's row of at most `tokens_max` tokens; None when there is no room for it now."""
        if not sequence.blocks and not self._begin(sequence):
            return None
        start = sequence.num_computed
        end = min(len(sequence.tokens), start + tokens_max)
        if sequence.draft and end < len(sequence.tokens):
            end = min(end, sequence.committed_len - 1)
        if end <= start or not self._reserve(sequence, end):
            return None
        self._launch(sequence)
        is_sampling = end == len(sequence.tokens)
        return Row(
            sequence.request_id,
            sequence.tokens[start:end],
            start,
            sequence.blocks,
            is_sampling,
            sequence.request.sampling,
            sequence.attempt,
            sequence.tokens,
            sequence.request.prompt_len,
            sequence.request.stop_ids,
            sequence.draft if is_sampling else 0,
            sequence.request.epoch,
        )

    def _reserve(self, sequence: Sequence, end: int) -> bool:
        """Most rows of most steps have their block already."""
        kv = self.roster.kv
        if not kv.num_missing(sequence, end):
            return True
        if not self.pressure.make_room(sequence, end):
            return False
        kv.reserve(sequence, end)
        return True

    def _begin(self, sequence: Sequence) -> bool:
        """Give a sequence without blocks what the prefix cache has of it, if the rest finds room."""
        kv, counters = self.roster.kv, self.roster.counters
        found = kv.match_prefix(sequence)
        counters.prefix_lookups += 1
        counters.prefix_lookups_on_return += sequence.sent is not None
        if not self.pressure.make_room_to_begin(sequence):
            kv.release(sequence)
            return False
        counters.prefix_hit_tokens += found
        return True

    def _launch(self, sequence: Sequence) -> None:
        sequence.happen(Event.SCHEDULED)
        queues = self.roster.queues
        queues.executing[sequence.key] = queues.ready.pop(sequence.key)
