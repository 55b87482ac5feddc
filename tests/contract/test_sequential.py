"""What makes the reference fast must not make it different, and its trace must be what it did."""

from __future__ import annotations

from functools import cache

import pytest

from tests.contract.demand import MAX_TOKENS_MAX, demo_pair, drawn, tiny_pair
from tests.contract.sequential import Carried, Look, Sequential
from tests.contract.verdict import referred
from tests.reference import LARGE, SMALL, Answer, Reader, generate_routed

PAIR = tiny_pair("llama", "qwen3")
JOBS = drawn(PAIR, seed=1, count=24)


@cache
def plain(number: int) -> Answer:
    """The reference of one job as it is, without a guess."""
    job = JOBS[number]
    small, large = map(Reader, PAIR.referee.models)
    return generate_routed((small, large), job.prompt, job.max_tokens, PAIR.referee.eos_ids, job.policy[2])


@pytest.mark.parametrize("kept", [0, 3, MAX_TOKENS_MAX])
def test_no_guess_a_wrong_guess_and_a_right_guess_give_the_same_answer(kept: int) -> None:
    answers = [plain(number) for number in range(len(JOBS))]
    guesses = [[*answer.tokens[:kept], *([50] if kept < MAX_TOKENS_MAX else [])] for answer in answers]
    guessed = [referred(PAIR, job, guess).answer for job, guess in zip(JOBS, guesses, strict=True)]
    assert guessed == answers


def test_the_demo_pair_is_guessed_right_too() -> None:
    pair = demo_pair()
    job = drawn(pair, seed=2, count=5)[4]
    unguessed = referred(pair, job, ())
    assert referred(pair, job, unguessed.answer.tokens).answer == unguessed.answer


def test_a_handoff_carries_what_the_other_has_not_seen() -> None:
    authors = [(SMALL, 5), (SMALL, 6), (LARGE, 6), (LARGE, 7), (SMALL, 8), (LARGE, 8)]
    looks = [Look(author, length, 1.0, 1.0) for author, length in authors]
    assert Sequential(5, Answer(), looks).handoffs == [
        Carried(SMALL, 0, 6),
        Carried(LARGE, 6, 8),
        Carried(SMALL, 8, 8),
    ]


def test_every_answer_has_as_many_handoffs_as_its_trace() -> None:
    runs = [referred(PAIR, job, ()) for job in JOBS]
    assert [len(run.handoffs) for run in runs] == [run.answer.handoffs for run in runs]
    assert sum(run.answer.handoffs for run in runs) > 100


def test_a_run_is_clear_when_neither_a_token_nor_a_cutoff_was_close() -> None:
    run = Sequential(1, Answer(), [Look(SMALL, 1, 0.5, 2.0), Look(SMALL, 2, 0.2, 3.0)])
    assert run.is_clear(0.1, 1.0)
    assert not run.is_clear(0.3, 1.0)
    assert not run.is_clear(0.1, 2.95)
