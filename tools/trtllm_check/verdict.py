"""One line of a check's result, and the report that lines add up to. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any


class Outcome(str, Enum):
    PASS = "PASS"
    FAIL = "FAIL"
    NOTE = "NOTE"
    """Worth knowing; neither good nor bad."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`subject` says what was looked at, `detail` what was found, with the cure where there is one."""

    outcome: Outcome
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.outcome.value}  {self.subject}: {self.detail}"


def judged(subject: str, faults: Sequence[str], found: str) -> Verdict:
    """FAIL with every fault, or PASS with what was found."""
    if faults:
        return Verdict(Outcome.FAIL, subject, "; ".join(faults))
    return Verdict(Outcome.PASS, subject, found)


def failed(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.outcome is Outcome.FAIL]


def closing(verdicts: Sequence[Verdict]) -> str:
    """The last line for a person."""
    bad = len(failed(verdicts))
    good = sum(verdict.outcome is Outcome.PASS for verdict in verdicts)
    return f"{good} passed, {bad} failed: " + ("do not serve with this" if bad else "ready to serve")


def document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """The report for a program."""
    return {"passed": not failed(verdicts), "verdicts": [asdict(verdict) for verdict in verdicts]}
