"""The bounded queue in front of a loop: many producers, one consumer.

Must never drop an item and never block a producer: a full inbox is the producer's CapacityError.
Order is arrival order. What is put together is drained together: a batch of hand-offs that a loop saw
in parts would be run in parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from router_backend.core.errors import CapacityError

Item = TypeVar("Item")

CAPACITY = 100_000


class Inbox(Generic[Item]):
    """`put` and `wake` from any thread; `drain` and `wait` from the one thread that owns the loop."""

    def __init__(self, capacity: int = CAPACITY, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = capacity
        self._clock = clock
        self._queue: SimpleQueue[Sequence[Item]] = SimpleQueue()
        self._head: Sequence[Item] | None = None
        """What `wait` had to take out to learn that something is there."""

    def __len__(self) -> int:
        """Puts that have not been drained."""
        return self._queue.qsize() + (self._head is not None)

    def put(self, item: Item) -> None:
        """Append `item`; raises CapacityError when the consumer is this far behind."""
        self.put_all((item,))

    def put_all(self, items: Sequence[Item]) -> None:
        """Append `items`, to be drained together."""
        if self._queue.qsize() >= self._capacity:
            raise CapacityError(f"an inbox holds {self._capacity} items: its loop cannot keep up")
        self._queue.put(items)

    def wake(self) -> None:
        """Make the current or the next `wait` return."""
        self._queue.put(())

    def drain(self) -> list[Item]:
        """Everything that has arrived, in order; does not wait."""
        arrived = [] if self._head is None else list(self._head)
        self._head = None
        for _ in range(self._queue.qsize()):
            arrived += self._queue.get_nowait()
        return arrived

    def wait(self, until: float | None) -> None:
        """Return when something is there to drain, or at `until` (seconds on the clock; None = no limit)."""
        if self._head is not None:
            return
        timeout_s = None if until is None else max(0.0, until - self._clock())
        try:
            self._head = self._queue.get(timeout=timeout_s)
        except Empty:
            return
