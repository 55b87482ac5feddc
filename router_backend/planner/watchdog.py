"""Does the plan pay in practice? Short alternating windows against thresholds of 1.

The model assumes geometric run lengths; where they are not, its optimum is off by 4-9 % at worst.
From time to time the watchdog runs a few windows with thresholds of 1 and as many with the plan, and
compares committed tokens per live request and second. Deterministic: `now` (seconds) is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from router_backend.core.errors import ConfigError


class Arm(Enum):
    """The two things that are compared."""

    PLANNED = "planned"
    ONES = "ones"


@dataclass(frozen=True, slots=True)
class WatchdogSettings:
    """When to compare, and what loss the plan may show.

    interval_s    one comparison in every interval, at its end
    window_s      length of one window; the arms alternate, ones first
    window_pairs  windows of each arm in one comparison
    settle_share  first part of a window that is not counted: it still holds batches of the other arm
    loss_max      the plan is dropped when it is worse than ones by more than this share
    tokens_min    tokens that each arm must have committed before it is judged
    memory        share of its evidence that a comparison leaves to the next
    """

    interval_s: float = 20.0
    window_s: float = 0.5
    window_pairs: int = 2
    settle_share: float = 0.2
    loss_max: float = 0.02
    tokens_min: float = 200.0
    memory: float = 0.5

    def __post_init__(self) -> None:
        if not (self.window_s > 0.0 and 2 * self.window_pairs * self.window_s <= self.interval_s):
            raise ConfigError("watchdog: window_s must be above 0 and all windows must fit interval_s")
        if self.window_pairs < 1 or not 0.0 <= self.settle_share < 1.0 or not 0.0 <= self.memory < 1.0:
            raise ConfigError("watchdog: window_pairs >= 1, settle_share and memory in 0..1 are needed")


@dataclass(slots=True)
class _Evidence:
    """Committed tokens and live request-seconds of one arm."""

    tokens: float = 0.0
    request_s: float = 0.0

    def fade(self, memory: float) -> None:
        self.tokens *= memory
        self.request_s *= memory

    @property
    def rate(self) -> float:
        return self.tokens / self.request_s if self.request_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class _Moment:
    """Where a time lies: interval number, arm of the window, and since when it counts (None: not)."""

    interval: int
    arm: Arm | None
    counts_from: float | None


class Watchdog:
    """Names the arm to run now, and prefers ones while the plan is measurably worse."""

    def __init__(self, now: float, settings: WatchdogSettings | None = None) -> None:
        self.settings = settings or WatchdogSettings()
        self.preferred = Arm.PLANNED
        self._started_at = now
        self._recorded_at = now
        self._interval = 0
        self._evidence = {arm: _Evidence() for arm in Arm}

    def arm(self, now: float) -> Arm:
        """What to run at `now`: the preferred arm, or the one whose window it is."""
        return self._locate(now).arm or self.preferred

    def record(self, tokens: int, live: int, now: float) -> None:
        """`tokens` were committed since the last record, with `live` requests in the system."""
        moment = self._locate(now)
        if moment.interval != self._interval:
            self._judge()
            self._interval = moment.interval
        if moment.arm is not None and moment.counts_from is not None:
            evidence = self._evidence[moment.arm]
            evidence.tokens += tokens
            evidence.request_s += live * max(now - max(self._recorded_at, moment.counts_from), 0.0)
        self._recorded_at = now

    def _locate(self, now: float) -> _Moment:
        settings = self.settings
        interval, into_s = divmod(max(now - self._started_at, 0.0), settings.interval_s)
        first_s = settings.interval_s - 2 * settings.window_pairs * settings.window_s
        if into_s < first_s:
            return _Moment(int(interval), None, None)
        window, inside_s = divmod(into_s - first_s, settings.window_s)
        settled_s = inside_s - settings.settle_share * settings.window_s
        arm = Arm.PLANNED if int(window) % 2 else Arm.ONES
        return _Moment(int(interval), arm, now - settled_s if settled_s >= 0.0 else None)

    def _judge(self) -> None:
        """Change sides beyond the allowed loss; change back as soon as the plan is at least equal."""
        planned, ones = self._evidence[Arm.PLANNED], self._evidence[Arm.ONES]
        if min(planned.tokens, ones.tokens) >= self.settings.tokens_min:
            if planned.rate < ones.rate * (1.0 - self.settings.loss_max):
                self.preferred = Arm.ONES
            elif planned.rate >= ones.rate:
                self.preferred = Arm.PLANNED
        for evidence in (planned, ones):
            evidence.fade(self.settings.memory)
