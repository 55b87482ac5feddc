"""Everybody on one model, and how they leave.

Owns the queues, the KV accounting, the live count and the memory of the ended. The one place where a
sequence ends: blocks freed, a tombstone set, peers told, and one `Close` if the right to append was
here. Never decides what runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from router_backend.core.effects import Close, Effect, Reason, Send, Usage
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import OfRequest, Request, RequestKey
from router_backend.core.sequence import Sequence
from router_backend.core.state import Event
from router_backend.handoff.message import Finished
from router_backend.kvcache.block_manager import BlockManager
from router_backend.scheduler.counters import Counters
from router_backend.scheduler.placement import Placement
from router_backend.scheduler.queues import Epitaph, Graveyard, Queues, Tombstone, epitaph
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.scheduler.spreads import Spreads

_NO_USAGE = Usage()


@dataclass(slots=True)
class Roster:
    """The population of one model."""

    settings: SchedulerSettings
    queues: Queues = field(default_factory=Queues)
    counters: Counters = field(default_factory=Counters)
    spreads: Spreads = field(default_factory=Spreads)
    graveyard: Graveyard = field(default_factory=Graveyard)
    live: dict[RequestKey, ReplicaIndex] = field(default_factory=dict)
    """Requests anywhere in the system, with the subserver that announced them."""
    kv: BlockManager = field(init=False)
    placement: Placement = field(init=False)
    _arrivals: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.kv = BlockManager(self.settings.num_blocks, self.settings.block_size)
        self.placement = Placement(self.settings.replicas, self.settings.subserver)

    def enroll(self, request: Request, tokens: list[int]) -> Sequence:
        """A new sequence with the next arrival number; not queued yet."""
        self._arrivals += 1
        seen = [0] * self.settings.models
        return Sequence(request, self.settings.model, self._arrivals, tokens, seen)

    def note_live(self, key: RequestKey, holder: ReplicaIndex) -> None:
        """`holder` has the live request, and is who announced it if nobody has before."""
        self.live.setdefault(key, holder)
        self.placement.note(key, holder)

    def forget_live(self, key: RequestKey) -> None:
        self.live.pop(key, None)
        self.placement.forget(key)

    @property
    def num_coming(self) -> int:
        """Live requests that are here or may still come: those that no other replica of this model has."""
        return len(self.live) - self.placement.elsewhere

    def refusal(self, request: Request, length: int) -> list[Effect]:
        """The ending of a request of `length` tokens that can never fit here; empty if it can."""
        limit = self.settings.tokens_max
        if request.length_max <= limit:
            return []
        message = (
            f"TR_CAPACITY: prompt ({request.prompt_len}) + max_tokens ({request.max_tokens}) = "
            f"{request.length_max} tokens can never fit model {self.settings.model} (at most {limit}); "
            "shorten the prompt or lower max_tokens"
        )
        self._bury(request, -1, is_aborted=False)
        return self._closing(request, Reason.ERROR, length - request.prompt_len, message)

    def finish(self, sequence: Sequence, event: Event, reason: Reason, message: str = "") -> list[Effect]:
        """End a request whose right to append is here."""
        length, kept = sequence.num_committed, sequence.committed_len
        usage = Usage(max(0, sequence.raw_steps - length), sequence.last_seq + 1)
        self.drop(sequence, event)
        effects = self._closing(sequence.request, reason, length, message, usage)
        return effects if sequence.drafter is None else self._with_kept(effects, sequence, kept)

    def resolve(self, sequence: Sequence, kept: int) -> None:
        """What is held back here is committed up to absolute length `kept`; the rest is discarded."""
        if sequence.held:
            length = min(max(kept, sequence.committed_len), len(sequence.tokens))
            self.counters.committed += length - sequence.committed_len
            self.counters.discarded += len(sequence.tokens) - length
            sequence.held = 0
            sequence.told.clear()
            sequence.truncate(length)

    def drop(self, sequence: Sequence, event: Event) -> None:
        """Free all that is held; blocks of a row in flight wait until its step is over."""
        sequence.happen(event)
        self.resolve(sequence, kept=0)
        self._bury(sequence.request, sequence.last_seq, is_aborted=event is Event.ABORTED)
        if sequence.key not in self.queues.executing:
            self.queues.remove(sequence)
            self.kv.release(sequence)

    def forget_live_of(self, subserver: ReplicaIndex) -> None:
        """What a lost subserver announced and is not here will never be told finished by it."""
        held = {sequence.key for sequence in self.queues}
        for key in [key for key, announcer in self.live.items() if announcer == subserver]:
            if key not in held:
                self.forget_live(key)

    def close_late(self, request: Request | Epitaph, stone: Tombstone, length: int) -> list[Effect]:
        """The right to append arrived after the abort: it ends here, once."""
        self.counters.stale_messages += 1
        if not stone.is_aborted:
            return []
        stone.is_aborted = False
        return self._closing(request, Reason.CANCELLED, length, "cancelled by the client")

    def farewells(self, request: OfRequest) -> list[Effect]:
        """What tells every other subserver that the request has ended here."""
        finished = Finished(request.request_id, request.epoch, self.placement.own)
        return [Send(other, finished) for other in self.placement.others]

    def _closing(
        self, request: Request | Epitaph, reason: Reason, length: int, message: str, usage: Usage = _NO_USAGE
    ) -> list[Effect]:
        close = Close(request.home, request.request_id, request.epoch, reason, length, message, usage)
        return [close, *self.farewells(request)]

    def _bury(self, request: Request, last_seq: int, is_aborted: bool) -> None:
        self.forget_live(request.key)
        stone = Tombstone(last_seq, epitaph(request), is_aborted)
        self.graveyard.bury(request.key, stone)

    def _with_kept(self, effects: list[Effect], sequence: Sequence, kept: int) -> list[Effect]:
        """`effects` of an end, with what the author of the last draft must know of it."""
        drafter = sequence.drafter
        assert drafter is not None, sequence.request_id
        author, known = sequence.replica_of(drafter), min(sequence.seen[drafter], kept)
        finished = Finished(sequence.request_id, sequence.request.epoch, self.placement.own, known)
        return [
            Send(author, finished) if isinstance(effect, Send) and effect.target == author else effect
            for effect in effects
        ]
