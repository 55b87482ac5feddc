"""The bounded queue in front of a loop: many producers, one consumer.

Must never drop an item and never block a producer: a full inbox is the producer's CapacityError.
Order is arrival order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from router_backend.core.errors import CapacityError

Item = TypeVar("Item")

CAPACITY = 100_000


class _Wake:
    """Queued to end a wait; never handed out."""


_WAKE = _Wake()


class Inbox(Generic[Item]):
    """`put` and `wake` from any thread; `drain` and `wait` from the one thread that owns the loop."""

    def __init__(self, capacity: int = CAPACITY, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._clock = clock
        self._queue: SimpleQueue[Item | _Wake] = SimpleQueue()
        self._head: Item | _Wake | None = None
        """What `wait` had to take out to learn that something is there."""

    def __len__(self) -> int:
        return self._queue.qsize() + (self._head is not None)

    def put(self, item: Item) -> None:
        """Append `item`; raises CapacityError when the consumer is this far behind."""
        if self._queue.qsize() >= self._capacity:
            raise CapacityError(f"an inbox holds {self._capacity} items: its loop cannot keep up")
        self._queue.put(item)

    def wake(self) -> None:
        """Make the current or the next `wait` return."""
        self._queue.put(_WAKE)

    def drain(self) -> list[Item]:
        """Everything that has arrived, in order; does not wait."""
        arrived = [] if self._head is None else [self._head]
        self._head = None
        for _ in range(self._queue.qsize()):
            arrived.append(self._queue.get_nowait())
        return [item for item in arrived if not isinstance(item, _Wake)]

    def wait(self, until: float | None) -> None:
        """Return when something is there to drain, or at `until` (seconds on the clock; None = no limit)."""
        if self._head is not None:
            return
        timeout_s = None if until is None else max(0.0, until - self._clock())
        try:
            self._head = self._queue.get(timeout=timeout_s)
        except Empty:
            return
