"""Greedy answers: equal, parted at a near tie, or wrong; and how long a step takes."""

from __future__ import annotations

import numpy as np

from tests.unit.tools.trtllm_check.runners import WORDS, tiny_runner
from tools.trtllm_check.answers import answer_verdict, greedy_readings, greedy_tokens
from tools.trtllm_check.stepper import Reading, Stepper
from tools.trtllm_check.timing import timing_verdict
from tools.trtllm_check.verdict import Outcome


def said(token: int, best: float, second: float) -> Reading:
    return Reading((1,), token, np.array([token, 99]), np.array([best, second], np.float32))


def test_an_answer_that_is_equal_passes() -> None:
    verdict = answer_verdict([said(1, 9, 1), said(2, 9, 1)], [1, 2], 0.02)
    assert (verdict.outcome, verdict.detail) == (Outcome.PASS, "equal")


def test_answers_may_part_at_a_near_tie_and_nowhere_else() -> None:
    tie = answer_verdict([said(1, 9, 1), said(2, 9, 8.9)], [1, 3], 0.02)
    assert (tie.outcome, tie.detail) == (
        Outcome.PASS,
        "equal up to a near tie: token 1 is 2, the LLM API says 3",
    )
    wrong = answer_verdict([said(1, 9, 1), said(2, 9, 1)], [1, 3], 0.02)
    assert wrong.outcome is Outcome.FAIL
    assert wrong.detail.startswith("token 1 is 2, the LLM API says 3; the engine was built of other weights")


def test_a_runner_answers_alike_with_and_without_numbers_and_is_timed() -> None:
    runner = tiny_runner()
    readings = greedy_readings(runner, WORDS.ids[:9], 6)
    assert [reading.token for reading in readings] == greedy_tokens(runner, WORDS.ids[:9], 6)

    note = timing_verdict(Stepper(runner), WORDS, rows_max=8, steps=2)
    runner.close()

    assert (note.outcome, note.subject) == (Outcome.NOTE, "decode step")
    assert note.detail.startswith("1 rows ")
    assert ", 8 rows " in note.detail
    assert "64 rows" not in note.detail, "the engine takes no batch of 64"
