"""What a target of `tools.fuzz` offers, and the loop that runs it.

The loop never stops at a fault: it gathers the kinds of fault with the number of the first trial that
showed each, which is all that a replay needs. Time is the processor's, so that a busy machine is no fault.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tools.soaking.memory import MIB, rss_bytes

SLOW_S = 1.0
"""A trial that takes longer counts as a hang."""
WARM_PART = 10
"""After so many parts of all trials begins what memory is compared with: one in ten warms up."""
GROWTH_BYTES_MAX = 16 * MIB
"""By which resident memory may grow from then on."""


class Target(Protocol):
    def trial(self, chance: Random) -> str:
        """One mutated input; a word for what became of it. Typed errors are a word, all else is raised."""
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault, and the first trial that showed it."""

    what: str
    number: int
    detail: str


@dataclass(slots=True)
class Findings:
    """What became of all trials."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: dict[str, Fault] = field(default_factory=dict)
    trials: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    warm_bytes: int = 0
    end_bytes: int = 0
    """Resident memory after the first tenth of the trials and after all."""

    def rows(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = [
            {"outcome": word, "count": count} for word, count in self.outcomes.most_common()
        ]
        return rows + [
            {"fault": fault.what, "trial": fault.number, "count": self.outcomes[fault.what]}
            for fault in self.faults.values()
        ]


def fuzz(target: Target, numbers: Sequence[int], seed: int) -> Findings:
    """Run the trials with these numbers; trial n of a seed is always the same."""
    findings = Findings()
    started_at = time.perf_counter()
    for number in numbers:
        before_at = time.thread_time()
        word = _tried(target, number, seed, findings)
        taken_s = time.thread_time() - before_at
        if taken_s > SLOW_S:
            word = f"took longer than {SLOW_S:g} s"
            findings.faults.setdefault(word, Fault(word, number, f"{taken_s:.1f} s"))
        findings.outcomes[word] += 1
        findings.trials += 1
        findings.slowest_s = max(findings.slowest_s, taken_s)
        if findings.trials == -(-len(numbers) // WARM_PART):
            findings.warm_bytes = rss_bytes(os.getpid())
    findings.seconds = time.perf_counter() - started_at
    _look_at_memory(findings, rss_bytes(os.getpid()))
    return findings


def _look_at_memory(findings: Findings, now_bytes: int) -> None:
    """What the trials left behind is a fault of its own; the last trial stands for it."""
    findings.end_bytes = now_bytes
    grown = now_bytes - findings.warm_bytes
    if grown > GROWTH_BYTES_MAX:
        word = f"memory grew by more than {GROWTH_BYTES_MAX // MIB} MiB"
        findings.outcomes[word] += 1
        findings.faults[word] = Fault(word, findings.trials - 1, f"{grown / MIB:.1f} MiB")


def _tried(target: Target, number: int, seed: int, findings: Findings) -> str:
    with _Catch() as caught:
        return target.trial(Random(f"{seed}:{number}"))
    assert caught.error is not None
    word = _where(caught.error)
    detail = "".join(traceback.format_exception(caught.error))
    findings.faults.setdefault(word, Fault(word, number, detail))
    return word


class _Catch:
    """Keeps whatever was raised, because whatever a target raises is a finding."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> _Catch:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


def _where(error: Exception) -> str:
    """The kind of an error: its type and the innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    innermost = [frame for frame in frames if "/site-packages/" not in frame.filename][-1]
    name = "/".join(innermost.filename.split("/")[-3:])
    return f"{type(error).__name__} at {name}:{innermost.lineno}"
