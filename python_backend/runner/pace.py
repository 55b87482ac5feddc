"""Letting time pass to within some microseconds, without keeping a core busy.

Sleeps for most of the time and looks at the clock for the rest, which is short because it holds
Python's lock: the other loops of the process run while it sleeps. (`sleep(0)` would let them run, but
takes some 50 us by itself.)
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass

SPIN_S = 0.0001
"""How long before a deadline sleeping gives way to looking at the clock: above the kernel's wake-up error."""
PR_SET_TIMERSLACK = 29
"""prctl(2): how much later than asked the kernel may wake this thread, 50 us unless told otherwise."""


def sharpen_timers() -> None:
    """Ask the kernel to wake the calling thread as exactly as it can. Costs wake-ups, so only engines ask."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a runner lets time pass; tests give a clock that jumps."""

    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    sharpen: Callable[[], None] = sharpen_timers

    def wait(self, until: float) -> None:
        """Return at `until` or within some microseconds after it: sleep, then spin."""
        remaining = until - self.clock()
        while remaining > SPIN_S:
            self.sleep(remaining - SPIN_S)
            remaining = until - self.clock()
        while self.clock() < until:
            pass
