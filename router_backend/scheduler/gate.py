"""Delayed batching: when does a model start a batch?

A model waits until a threshold of requests is ready (arXiv:2610.12242, section 4). The threshold is
bounded by what can still arrive, and the wait by a deadline, so that no setting can strand a request:
fixed thresholds stranded the last requests of a burst in 276 of 288 settings of a prototype.

A table with a term, one row of thresholds per number of live requests, can take the place of the
configured ones; when its term is over and no other has come, the configured ones hold again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field

from router_backend.core.errors import ConfigError
from router_backend.core.replicas import Replicas
from router_backend.scheduler.batch import Hold, Launch, LaunchReason


def feasible_thresholds(thresholds: Sequences[int], live: int) -> tuple[int, ...]:
    """Largest thresholds, none above the given, with sum(threshold - 1) < live (Appendix D).

    Then at least one model always has enough requests to start, whatever their distribution.
    Every subserver computes the same answer from the same live count.
    """
    bounded = [max(1, min(threshold, live)) for threshold in thresholds]
    while sum(bounded) - len(bounded) >= max(live, 1):
        bounded[bounded.index(max(bounded))] -= 1
    return tuple(bounded)


Table = tuple[tuple[int, ...], ...]
"""Row i holds every model's threshold while i + 1 requests are live; the last row also for more."""


@dataclass(slots=True)
class BatchGate:
    """The launch decision of one subserver of `model`; `thresholds` holds every model's, in deployment order.

    Where models have several `replicas`, each of them has its model's threshold, and the bound holds for all
    of them together: whatever the distribution of the live requests, somebody can start.
    """

    model: int
    thresholds: tuple[int, ...]
    batch_max: int
    deadline_s: float
    replicas: Replicas | None = None
    """None = one of each model."""
    replica: int = 0
    """The number of this subserver; the model's, where there is one of each."""
    table: Table = field(init=False)
    _until: float = field(init=False, default=math.inf)

    def __post_init__(self) -> None:
        self.table = (self.thresholds,)
        if self.replicas is None or self.replicas.is_single:
            self.replicas, self.replica = None, self.model
        if min(self.thresholds) < 1:
            raise ConfigError(f"threshold: {self.thresholds} must all be at least 1")
        if self.thresholds[self.model] > self.batch_max:
            raise ConfigError(f"threshold: {self.thresholds[self.model]} exceeds batch_max {self.batch_max}")
        if not self.deadline_s >= 0:
            raise ConfigError(f"deadline_s: {self.deadline_s} must be 0 or more")

    def use(self, table: Table, until: float) -> None:
        """Put `table` in force until `until` (seconds); ConfigError unless every row fits the models."""
        if not table or any(len(row) != len(self.thresholds) or min(row) < 1 for row in table):
            raise ConfigError(f"thresholds: rows of {len(self.thresholds)}, all at least 1, not {table}")
        self.table, self._until = table, until

    def expire(self, now: float) -> None:
        """Go back to the configured thresholds if the table's term is over."""
        if now >= self._until:
            self.forget()

    def forget(self) -> None:
        """Go back to the configured thresholds."""
        self.table, self._until = (self.thresholds,), math.inf

    def threshold(self, live: int) -> int:
        """The threshold in force while `live` requests are in the system."""
        return min(feasible_thresholds(self._wanted(live), live)[self.replica], self.batch_max)

    def is_feasible(self, live: int) -> bool:
        """The wanted thresholds fit `live` requests as they are: sum(threshold - 1) < live."""
        wanted = self._wanted(live)
        return feasible_thresholds(wanted, live) == wanted

    def decide(
        self, *, ready: int, live: int, oldest_at: float, now: float, coming: int | None = None
    ) -> Launch | Hold:
        """Launch or hold; `ready` requests wait, the first of them since `oldest_at` (seconds).

        `coming` of the `live` ones are here or may still come, all of them by default.
        """
        if ready == 0:
            return Hold()
        threshold = self.threshold(live)
        if coming is not None:
            live = max(coming, ready)
            threshold = min(threshold, live)
        if ready >= threshold:
            return Launch(self._reason(ready, live))
        if now >= oldest_at + self.deadline_s:
            return Launch(LaunchReason.DEADLINE)
        return Hold(min(oldest_at + self.deadline_s, self._until))

    def _row(self, live: int) -> tuple[int, ...]:
        return self.table[min(max(live, 1), len(self.table)) - 1]

    def _wanted(self, live: int) -> tuple[int, ...]:
        """The thresholds of all subservers, by their number."""
        row = self._row(live)
        return row if self.replicas is None else tuple(row[model] for model in self.replicas.models)

    def _reason(self, ready: int, live: int) -> LaunchReason:
        if ready >= min(self._row(live)[self.model], self.batch_max):
            return LaunchReason.THRESHOLD
        if live <= 1:
            return LaunchReason.ALONE
        return LaunchReason.IDLE_RELEASE if ready >= live else LaunchReason.DRAIN
