"""Lines of a check, for a person and for a program."""

from __future__ import annotations

from tools.trtllm_check.verdict import Outcome, Verdict, closing, document, failed, judged

GOOD = judged("symbols", [], "20 of 20")
BAD = judged("engine", ["a", "b"], "fine")
NOTE = Verdict(Outcome.NOTE, "decode step", "6 ms")


def test_a_line_says_outcome_subject_and_what_was_found() -> None:
    assert [str(verdict) for verdict in (GOOD, BAD, NOTE)] == [
        "PASS  symbols: 20 of 20",
        "FAIL  engine: a; b",
        "NOTE  decode step: 6 ms",
    ]


def test_a_note_neither_passes_nor_fails() -> None:
    assert failed([GOOD, BAD, NOTE]) == [BAD]
    assert closing([GOOD, NOTE]) == "1 passed, 0 failed: ready to serve"
    assert closing([GOOD, BAD, NOTE]) == "1 passed, 1 failed: do not serve with this"


def test_a_program_gets_every_line() -> None:
    assert document([BAD]) == {
        "passed": False,
        "verdicts": [{"outcome": Outcome.FAIL, "subject": "engine", "detail": "a; b"}],
    }
