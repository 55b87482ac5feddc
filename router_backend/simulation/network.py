"""A network that delays, reorders, repeats and loses messages, as a seed says.

Owns when each copy of a message arrives; never looks into one. A link (source, target) keeps its
order, like a socket, except for messages that are late. Delays are whole ticks, so that arrivals
often fall on the same instant as something else, which is where mistakes are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, slots=True)
class Conditions:
    """Probabilities are per message. The default is a perfect network: no delay, nothing lost."""

    tick_s: float = 0.125
    delay_ticks_max: int = 0
    late_p: float = 0.0
    """A late message leaves the order of its link and takes up to `late_ticks_max` longer."""
    late_ticks_max: int = 0
    duplicate_p: float = 0.0
    drop_p: float = 0.0

    @property
    def is_perfect(self) -> bool:
        return not (self.delay_ticks_max or self.late_p or self.duplicate_p or self.drop_p)


PERFECT = Conditions()


@dataclass(slots=True)
class Network:
    """Arrival times by the draws of `rng`; one per simulation."""

    conditions: Conditions
    rng: np.random.Generator
    sent: int = 0
    late: int = 0
    duplicated: int = 0
    dropped: int = 0
    _last_at: dict[tuple[int, int], float] = field(default_factory=dict)

    def arrivals(self, link: tuple[int, int], now: float, is_droppable: bool = True) -> list[float]:
        """When each copy of a message sent now arrives: usually one, none if lost, two if repeated."""
        self.sent += 1
        conditions = self.conditions
        if conditions.is_perfect:
            return [now]
        if self._happens(conditions.drop_p) and is_droppable:
            self.dropped += 1
            return []
        arrivals = [self._arrival(link, now)]
        if self._happens(conditions.duplicate_p):
            self.duplicated += 1
            arrivals.append(arrivals[0] + self._ticks(conditions.late_ticks_max))
        return arrivals

    def _arrival(self, link: tuple[int, int], now: float) -> float:
        at = now + self._ticks(self.conditions.delay_ticks_max)
        if self._happens(self.conditions.late_p):
            self.late += 1
            return at + self._ticks(self.conditions.late_ticks_max)
        self._last_at[link] = max(at, self._last_at.get(link, 0.0))
        return self._last_at[link]

    def _ticks(self, ticks_max: int) -> float:
        return int(self.rng.integers(ticks_max + 1)) * self.conditions.tick_s

    def _happens(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)
