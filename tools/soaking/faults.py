"""Which faults come when, how they are made, and how long the model takes to answer again.

The schedule is pure. A strike ends when a request that needs the model was answered, or after `BACK_S_MAX`;
one strike ends before the next begins, and a process that was stopped is always woken.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

RECOVERY_S_MAX = 10.0
"""What a recovery may take."""
BACK_S_MAX = 60.0
"""How long one is waited for, so that a late one is told with its time."""
FREEZE_S = 12.0
LOOK_S = 0.1


class Kind(Enum):
    KILL = "kill -9"
    FREEZE = "SIGSTOP"


@dataclass(frozen=True, slots=True)
class Fault:
    """`at_s`: since the load began."""

    at_s: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault as it happened. `recovered_s`: from the kill, or from the waking, until the model answered;
    None = it did not within `BACK_S_MAX`."""

    kind: Kind
    at_s: float
    recovered_s: float | None

    @property
    def until_s(self) -> float:
        lasted = FREEZE_S if self.kind is Kind.FREEZE else 0.0
        return self.at_s + lasted + (BACK_S_MAX if self.recovered_s is None else self.recovered_s)


def schedule(duration_s: float, every_s: float) -> tuple[Fault, ...]:
    """A kill every `every_s`, the last one with time to recover; one freeze halfway between two kills in the
    middle, where it fits between them."""
    count = int((duration_s - RECOVERY_S_MAX) / every_s)
    kills = [Fault(every_s * number, Kind.KILL) for number in range(1, count + 1)]
    if count < 2 or every_s / 2 < FREEZE_S + RECOVERY_S_MAX:
        return tuple(kills)
    middle = count // 2
    freeze = Fault(kills[middle - 1].at_s + every_s / 2, Kind.FREEZE)
    return (*kills[:middle], freeze, *kills[middle:])


class Processes(Protocol):
    """What is asked of `TritonServer`."""

    def stubs(self) -> Mapping[str, int]:
        """Process id of each model's Python process, by model name."""
        ...


@dataclass(frozen=True, slots=True)
class Striker:
    """Makes faults on one model. `answers`: whether a request that needs it is answered now."""

    server: Processes
    model: str
    answers: Callable[[], bool]
    kill: Callable[[int, int], None] = os.kill
    clock: Callable[[], float] = time.monotonic

    def run(self, faults: Sequence[Fault], began_at: float, over: threading.Event) -> list[Strike]:
        """Every fault in turn, until `over`."""
        done: list[Strike] = []
        for fault in faults:
            if over.wait(max(0.0, began_at + fault.at_s - self.clock())):
                break
            pid = self._process(over)
            if pid is None:
                break
            at_s = self.clock() - began_at
            if fault.kind is Kind.FREEZE:
                self._freeze(pid, over)
            else:
                self.kill(pid, signal.SIGKILL)
            done.append(Strike(fault.kind, at_s, self._recovered_s(over)))
        return done

    def _process(self, over: threading.Event) -> int | None:
        """The model's process; None when it has none for `RECOVERY_S_MAX`: nothing can be struck."""
        for _ in range(round(RECOVERY_S_MAX / LOOK_S)):
            with contextlib.suppress(OSError):  # another process ended while it was looked at
                if self.model in (found := self.server.stubs()):
                    return found[self.model]
            over.wait(LOOK_S)
        return None

    def _freeze(self, pid: int, over: threading.Event) -> None:
        self.kill(pid, signal.SIGSTOP)
        try:
            over.wait(FREEZE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the supervisor may have taken it out
                self.kill(pid, signal.SIGCONT)

    def _recovered_s(self, over: threading.Event) -> float | None:
        since = self.clock()
        while self.clock() < since + BACK_S_MAX:
            if self.answers():
                return self.clock() - since
            over.wait(LOOK_S)
        return None
