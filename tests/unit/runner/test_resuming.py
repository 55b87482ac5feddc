"""The two ways around a resume inside a block, over a runner that notes what it is fed."""

from __future__ import annotations

import numpy as np

from python_backend.runner.base import RunnerInfo
from python_backend.runner.resuming import Resume, ResumingRunner
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row, StepOutput

TEXT = list(range(100, 120))
NEEDS = Needs(entropy=True)


class Noting:
    """Remembers (start, tokens, samples) of every row of every step."""

    info = RunnerInfo(200, 100, 8, 4, frozenset())

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, list[int], bool]]] = []
        self.needs: list[Needs] = []
        self.is_closed = False

    def execute(self, plan: BatchPlan) -> StepOutput:
        self.steps.append([(row.start, list(row.token_ids), row.is_sampling) for row in plan.rows])
        self.needs.append(plan.needs)
        return StepOutput(np.array([row.end for row in plan.sampling_rows]))

    def close(self) -> None:
        self.is_closed = True


def row(start: int, end: int) -> Row:
    return Row(RequestId("r"), TEXT[start:end], start, [0, 1, 2, 3, 4], True, Sampling(), 0, TEXT)


def run(resume: Resume, *rows: Row) -> tuple[Noting, list[int]]:
    noting = Noting()
    output = ResumingRunner(noting, resume).execute(BatchPlan(1, rows, NEEDS, LaunchReason.DRAIN))
    return noting, output.tokens.tolist()


ROWS = (row(7, 10), row(5, 6), row(8, 11), row(0, 3))
"""Inside a block, a decode, at a block's start, a fresh prompt."""


def test_an_aligned_row_starts_where_its_block_does() -> None:
    noting, ends = run(Resume.ALIGN, *ROWS)
    (step,) = noting.steps
    assert step == [
        (4, TEXT[4:10], True),
        (5, TEXT[5:6], True),
        (8, TEXT[8:11], True),
        (0, TEXT[0:3], True),
    ]
    assert ends == [10, 6, 11, 3]


def test_one_by_one_feeds_single_tokens_up_to_the_next_block() -> None:
    noting, ends = run(Resume.ONE_BY_ONE, *ROWS)
    first, last = noting.steps
    assert first == [(7, TEXT[7:8], False)]
    assert last == [(8, TEXT[8:10], True), *((r.start, r.token_ids, True) for r in ROWS[1:])]
    assert noting.needs == [Needs(), NEEDS]
    assert ends == [10, 6, 11, 3]


def test_one_by_one_ends_in_a_decode_where_the_block_is_not_filled() -> None:
    noting, ends = run(Resume.ONE_BY_ONE, row(5, 8), row(9, 11))
    assert noting.steps == [
        [(5, TEXT[5:6], False), (9, TEXT[9:10], False)],
        [(6, TEXT[6:7], False)],
        [(7, TEXT[7:8], True), (10, TEXT[10:11], True)],
    ]
    assert ends == [8, 11]


def test_it_closes_what_it_stands_before() -> None:
    noting = Noting()
    ResumingRunner(noting, Resume.ALIGN).close()
    assert noting.is_closed
