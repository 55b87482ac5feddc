"""Does the plan pay in practice? Short alternating windows against thresholds of 1.

The model assumes geometric run lengths; where they are not, its optimum is off by 4-9 % at worst.
From time to time the watchdog runs a few windows with thresholds of 1, each followed by one with the plan,
and compares committed tokens per live request and second. One pair of windows says little (its noise is
about 10 %), so that the plan is dropped only for a loss that stands out of the noise of all pairs so far.
Deterministic: `now` (seconds) is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import log, sqrt

from router_backend.core.errors import ConfigError

# Noise of one pair that is assumed before any was seen, and the number of pairs that belief is worth.
PRIOR_DEVIATION = 0.1
PRIOR_PAIRS = 3.0
# Standard errors by which a loss must stand out.
SIGNIFICANCE = 3.0


class Arm(Enum):
    """The two things that are compared."""

    PLANNED = "planned"
    ONES = "ones"


@dataclass(frozen=True, slots=True)
class WatchdogSettings:
    """When to compare, and what loss the plan may show.

    interval_s    one comparison in every interval, at its end
    window_s      length of one window
    window_pairs  pairs of windows in one comparison, ones first in each
    settle_share  first part of a window that is not counted: it still holds batches of the other arm
    loss_max      the plan is dropped when it is surely worse than ones by more than this share
    tokens_min    tokens that both windows of a pair must have committed to count
    memory        weight that a pair keeps with every later one
    """

    interval_s: float = 20.0
    window_s: float = 0.5
    window_pairs: int = 2
    settle_share: float = 0.2
    loss_max: float = 0.02
    tokens_min: int = 20
    memory: float = 0.9

    def __post_init__(self) -> None:
        if not (self.window_s > 0.0 and 2 * self.window_pairs * self.window_s <= self.interval_s):
            raise ConfigError("watchdog: window_s must be above 0 and all windows must fit interval_s")
        if self.window_pairs < 1 or not 0.0 <= self.settle_share < 1.0 or not 0.0 <= self.memory < 1.0:
            raise ConfigError("watchdog: window_pairs >= 1, settle_share and memory in 0..1 are needed")


@dataclass(slots=True)
class _Window:
    """Committed tokens and live request-seconds of one arm in the current pair."""

    tokens: int = 0
    request_s: float = 0.0


@dataclass(slots=True)
class _Advantage:
    """Faded statistics of log(rate of the plan / rate of ones) over the pairs."""

    pairs: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float, memory: float) -> None:
        self.pairs = self.pairs * memory + 1.0
        self.total = self.total * memory + value
        self.squares = self.squares * memory + value * value

    @property
    def mean(self) -> float:
        return self.total / self.pairs if self.pairs else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        spread = max(self.squares - self.pairs * self.mean**2, 0.0) + PRIOR_PAIRS * PRIOR_DEVIATION**2
        return sqrt(spread / (self.pairs + PRIOR_PAIRS) / max(self.pairs, 1.0))


@dataclass(frozen=True, slots=True)
class _Moment:
    """Where a time lies: number of the pair of windows (None between comparisons), arm, seconds counted."""

    pair: int | None
    arm: Arm
    counted_s: float


class Watchdog:
    """Names the arm to run now, and prefers ones while the plan is measurably worse."""

    def __init__(self, now: float, settings: WatchdogSettings | None = None) -> None:
        self.settings = settings or WatchdogSettings()
        self.preferred = Arm.PLANNED
        self._started_at = now
        self._recorded_at = now
        self._pair: int | None = None
        self._windows = {arm: _Window() for arm in Arm}
        self._advantage = _Advantage()

    def arm(self, now: float) -> Arm:
        """What to run at `now`: the preferred arm, or the one whose window it is."""
        return self._locate(now).arm

    def record(self, tokens: int, live: int, now: float) -> None:
        """`tokens` were committed since the last record, with `live` requests in the system."""
        moment = self._locate(now)
        if moment.pair != self._pair:
            self._close_pair()
            self._pair = moment.pair
        if moment.pair is not None and moment.counted_s > 0.0:
            window = self._windows[moment.arm]
            window.tokens += tokens
            window.request_s += live * min(max(now - self._recorded_at, 0.0), moment.counted_s)
        self._recorded_at = now

    def _locate(self, now: float) -> _Moment:
        settings = self.settings
        interval, into_s = divmod(max(now - self._started_at, 0.0), settings.interval_s)
        first_s = settings.interval_s - 2 * settings.window_pairs * settings.window_s
        if into_s < first_s:
            return _Moment(None, self.preferred, 0.0)
        window, inside_s = divmod(into_s - first_s, settings.window_s)
        pair, place = divmod(int(window), 2)
        counted_s = inside_s - settings.settle_share * settings.window_s
        arm = Arm.PLANNED if place else Arm.ONES
        return _Moment(int(interval) * settings.window_pairs + pair, arm, counted_s)

    def _close_pair(self) -> None:
        planned, ones = self._windows[Arm.PLANNED], self._windows[Arm.ONES]
        self._windows = {arm: _Window() for arm in Arm}
        enough = max(self.settings.tokens_min, 1)
        if min(planned.tokens, ones.tokens) >= enough and min(planned.request_s, ones.request_s) > 0.0:
            ratio = (planned.tokens / planned.request_s) / (ones.tokens / ones.request_s)
            self._advantage.add(log(ratio), self.settings.memory)
            self._judge()

    def _judge(self) -> None:
        """Change sides for a sure loss; change back as soon as the plan looks at least equal."""
        mean, error = self._advantage.mean, self._advantage.error
        if mean + SIGNIFICANCE * error < log(1.0 - self.settings.loss_max):
            self.preferred = Arm.ONES
        elif mean >= 0.0:
            self.preferred = Arm.PLANNED
