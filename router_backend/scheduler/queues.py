"""Where every sequence of a model is: ready, executing or parked; and who is gone.

A sequence is in exactly one of the three. Order is arrival order: what waited longest runs first,
and rows that stay queue up again behind what arrived while they ran.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from router_backend.core.request import OfRequest, Request, RequestId, RequestKey
from router_backend.core.sequence import Sequence
from router_backend.core.state import State


@dataclass(frozen=True, slots=True)
class Epitaph(OfRequest):
    """Of an ended request, what its `Close` needs. Thousands are kept, so the prompt is not among it."""

    request_id: RequestId
    epoch: int
    home: str
    prompt_len: int


def epitaph(request: Request) -> Epitaph:
    return Epitaph(request.request_id, request.epoch, request.home, request.prompt_len)


@dataclass(slots=True)
class Tombstone:
    """What must be remembered of an ended request so that late messages do no harm.

    `epitaph` is None where the request itself never came. `is_aborted`: it ended here by an abort, so its
    right to append may still arrive, and whoever receives it then closes the request.
    """

    last_seq: int
    epitaph: Epitaph | None
    is_aborted: bool


@dataclass(slots=True)
class Graveyard:
    """Tombstones, the oldest forgotten first."""

    size_max: int = 16384
    _stones: OrderedDict[RequestKey, Tombstone] = field(default_factory=OrderedDict)

    def bury(self, key: RequestKey, stone: Tombstone) -> None:
        self._stones.setdefault(key, stone)
        if len(self._stones) > self.size_max:
            self._stones.popitem(last=False)

    def find(self, key: RequestKey) -> Tombstone | None:
        return self._stones.get(key)


@dataclass(slots=True)
class Queues:
    """The sequences of one model, by the life of the request that each is of."""

    ready: dict[RequestKey, Sequence] = field(default_factory=dict)
    executing: dict[RequestKey, Sequence] = field(default_factory=dict)
    parked: dict[RequestKey, Sequence] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self.ready.values()
        yield from self.executing.values()
        yield from self.parked.values()

    def __len__(self) -> int:
        return len(self.ready) + len(self.executing) + len(self.parked)

    def find(self, key: RequestKey) -> Sequence | None:
        """The sequence, unless it has ended and only waits for its step to be over."""
        for queue in (self.ready, self.parked, self.executing):
            if key in queue:
                found = queue[key]
                return None if found.state is State.FINISHED else found
        return None

    @property
    def oldest_at(self) -> float:
        """When the head of the ready queue began to wait."""
        return next(iter(self.ready.values())).ready_at

    def append(self, sequence: Sequence, now: float) -> None:
        sequence.ready_at = now
        self.ready[sequence.key] = sequence

    def put_back(self, sequences: list[Sequence]) -> None:
        """To the front, in this order: they still wait for the token that they began to wait for.

        Behind the others, two long prompts in a small pool would take each other's blocks for ever.
        """
        if sequences:
            self.ready = {**{sequence.key: sequence for sequence in sequences}, **self.ready}

    def remove(self, sequence: Sequence) -> None:
        for queue in (self.ready, self.parked, self.executing):
            queue.pop(sequence.key, None)
