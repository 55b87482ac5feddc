"""What became of a request: judged against the text that the same server wrote before the faults began.

Pure. Text that a client has got must be the beginning of the right text also where the request was cancelled
or failed: a failure never takes back or changes what was streamed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from tools.soaking.asking import Heard
from tools.soaking.work import Asked

KEPT = 10
"""So many wrong requests are told with all that is known."""
_CODE = re.compile(r"\bTR_[A-Z_]+")


class Fate(Enum):
    """How a request ended."""

    RIGHT = "right"
    CANCELLED = "cancelled"
    TOLD = "told"
    """An error with one of our codes."""
    WRONG = "WRONG"
    """Another text than the right one, or an error without a code."""
    TWICE = "twice"
    """More than one end."""
    WITHOUT_END = "without end"
    """Silent for too long, or cut off without a last word."""


FORBIDDEN = (Fate.WRONG, Fate.TWICE, Fate.WITHOUT_END)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`why`: the code of a failure, or what is wrong."""

    fate: Fate
    why: str = ""


def judged(heard: Heard, expected: str) -> Outcome:
    """The first rule that is broken decides."""
    if heard.is_silent:
        return Outcome(Fate.WITHOUT_END, f"{len(heard.text)} of {len(expected)} characters")
    if not heard.has_left and heard.ends != 1:
        return Outcome(Fate.TWICE if heard.ends else Fate.WITHOUT_END, f"{heard.ends} ends: {heard.error}")
    if not expected.startswith(heard.text):
        return Outcome(Fate.WRONG, "another text")
    if heard.has_left:
        return Outcome(Fate.CANCELLED)
    return _ended(heard, expected)


def _ended(heard: Heard, expected: str) -> Outcome:
    if heard.error:
        code = _CODE.search(heard.error)
        return Outcome(Fate.TOLD, code[0]) if code else Outcome(Fate.WRONG, f"no code: {heard.error}")
    return Outcome(Fate.RIGHT) if heard.text == expected else Outcome(Fate.WRONG, "a part of the text")


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that was told of a failure; seconds since the load began."""

    asked_s: float
    ended_s: float
    code: str


@dataclass(frozen=True, slots=True)
class Wrong:
    """All that is known of a request that did not end as it may."""

    asked: Asked
    why: str
    asked_s: float
    ended_s: float
    text: str
    expected: str


@dataclass(slots=True)
class Tally:
    """Every request of a soak, counted once."""

    began_at: float
    by_way: dict[str, Counter[Fate]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    wrong: list[Wrong] = field(default_factory=list)

    def count(self, asked: Asked, heard: Heard, expected: str) -> Outcome:
        outcome = judged(heard, expected)
        self.by_way.setdefault(f"{asked.door}, {asked.way.value}", Counter())[outcome.fate] += 1
        asked_s, ended_s = heard.asked_at - self.began_at, heard.ended_at - self.began_at
        if outcome.fate is Fate.TOLD:
            self.failures.append(Failure(asked_s, ended_s, outcome.why))
        elif outcome.fate in FORBIDDEN and len(self.wrong) < KEPT:
            self.wrong.append(Wrong(asked, outcome.why, asked_s, ended_s, heard.text, expected))
        return outcome

    def total(self, fate: Fate) -> int:
        return sum(counts[fate] for counts in self.by_way.values())

    @property
    def requests(self) -> int:
        return sum(counts.total() for counts in self.by_way.values())
