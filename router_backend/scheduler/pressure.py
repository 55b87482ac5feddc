"""Whose KV goes when blocks run out, and who has to wait instead.

Three rules keep a pool that is too small for everybody from working for nothing:

* Parked sequences lose their cache first, the cheapest to recompute before others; then ready ones, the
  youngest before others. Nobody takes from an older one that is ready, so the oldest always comes through.
* Who begins without a cache waits for room for its whole text, and a block more for each that runs. It takes
  nothing from older parked ones: on their return they would take it back, for ever.
* Parked sequences together hold at most a share of the pool.

Where nobody who is ready finds room (all blocks parked for another model, which may wait in the same way for
this one), the oldest takes them from any that is parked. Decides nothing else, runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from router_backend.core.sequence import Sequence
from router_backend.core.state import Event, State
from router_backend.scheduler.roster import Roster


@dataclass(slots=True)
class KvPressure:
    """Takes blocks from one roster's sequences."""

    roster: Roster

    def make_room(self, sequence: Sequence, length: int) -> bool:
        """Evict until `sequence`, which holds blocks, has `length` tokens' worth; False if it must wait."""
        while not self.roster.kv.can_reserve(sequence, length):
            victim = self._cheapest(self._parked) or self._youngest_ready(sequence)
            if victim is None:
                return False
            self._evict(victim)
        return True

    def make_room_to_begin(self, sequence: Sequence) -> bool:
        """The same for one that holds none, or no more than the prefix cache had; for all of its text."""
        while not self._has_room_to_begin(sequence):
            victim = self._cheapest(self._parked_for(sequence)) or self._youngest_ready(sequence)
            if victim is None:
                return False
            self._evict(victim)
        return True

    def free_for_oldest(self) -> Sequence:
        """Break a stall: every parked cache may go for the oldest ready sequence, which is returned.

        It fits then: nothing runs, and no sequence is admitted that is longer than the pool.
        """
        self.roster.counters.kv_stalls += 1
        oldest = min(self.roster.queues.ready.values(), key=_arrival)
        while not self.roster.kv.can_reserve(oldest, len(oldest.tokens)):
            victim = self._cheapest(self._parked) or self._youngest_ready(oldest)
            assert victim is not None, f"{oldest.request_id}: {len(oldest.tokens)} tokens fit an empty pool"
            self._evict(victim)
        return oldest

    def limit_parked(self) -> None:
        """Evict the cheapest parked sequences until the others hold no more than their share."""
        limit = self.roster.settings.parked_blocks_max
        if self.roster.kv.pool.num_held <= limit:
            return
        holders = [sequence for sequence in self._parked if sequence.blocks]
        while sum(len(holder.blocks) for holder in holders) > limit and _num_distinct(holders) > limit:
            victim = self._cheapest(holders)
            assert victim is not None, f"{limit} blocks are held by nobody"
            self._evict(victim)
            holders.remove(victim)

    @property
    def _parked(self) -> Iterable[Sequence]:
        return self.roster.queues.parked.values()

    def _parked_for(self, sequence: Sequence) -> Iterable[Sequence]:
        """Those that it may take from to begin."""
        return [other for other in self._parked if other.arrival > sequence.arrival]

    def _has_room_to_begin(self, sequence: Sequence) -> bool:
        """A block for each that runs stays free: else the next step would take back what this one gets."""
        kv, queues = self.roster.kv, self.roster.queues
        running = [other for other in queues.ready.values() if other.blocks and other is not sequence]
        spare = len(running) + len(queues.executing)
        return kv.num_missing(sequence, len(sequence.tokens)) + spare <= kv.pool.num_available

    def _cheapest(self, parked: Iterable[Sequence]) -> Sequence | None:
        holders = [sequence for sequence in parked if sequence.blocks]
        return min(holders, key=lambda holder: (holder.num_computed, holder.arrival), default=None)

    def _youngest_ready(self, sequence: Sequence) -> Sequence | None:
        """Younger than `sequence`; who came first of all gives to nobody."""
        younger = [
            other
            for other in self.roster.queues.ready.values()
            if other.blocks and other.arrival > sequence.arrival
        ]
        return max(younger, key=_arrival, default=None)

    def _evict(self, victim: Sequence) -> None:
        counters = self.roster.counters
        counters.recomputed_tokens += self.roster.kv.release(victim)
        if victim.state is State.RUNNING:
            victim.happen(Event.PREEMPTED)
            counters.preemptions += 1
        else:
            counters.parked_evictions += victim.state is State.PENDING_RETURN


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival


def _num_distinct(holders: Iterable[Sequence]) -> int:
    """A block that several sequences share is one block."""
    return len({block for holder in holders for block in holder.blocks})
