"""How a returning sequence's unseen tokens are fed when its KV cache ends inside a block.

An engine that takes many tokens behind a cache of any length needs nothing of this. For one whose
kernels cannot be trusted there (trtllm.md, section 11), two ways around it, as a runner in front of the
runner: the invariant is that no row of several tokens starts inside a block. Either way the slots that
are written again are written with what they held.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from python_backend.runner.base import ModelRunner, RunnerInfo
from router_backend.scheduler.batch import BatchPlan, Needs, Row, StepOutput


class Resume(str, Enum):
    """What to do with a row of several tokens that starts inside a block."""

    MID_BLOCK = "mid_block"
    """Feed it as it is."""
    ALIGN = "align"
    """Feed the block's earlier tokens again, so that the row starts where the block does."""
    ONE_BY_ONE = "one_by_one"
    """Feed one token a step until the block is full, so that every step is an ordinary decode."""


class ResumingRunner:
    """`inner` with one of the two ways around; `info` is its own."""

    info: RunnerInfo

    def __init__(self, inner: ModelRunner, resume: Resume) -> None:
        self.info = inner.info
        self._inner = inner
        self._resume = resume

    def execute(self, plan: BatchPlan) -> StepOutput:
        block_size = self.info.block_size
        if self._resume is Resume.ALIGN:
            rows = tuple(aligned(row, block_size) for row in plan.rows)
            return self._inner.execute(_with(plan, rows))
        rows = plan.rows
        while steps := [row for row in rows if is_inside(row, block_size)]:
            single = tuple(row._replace(token_ids=row.token_ids[:1], is_sampling=False) for row in steps)
            self._inner.execute(BatchPlan(plan.step, single, Needs(), plan.reason))
            rows = tuple(_behind_first(row) if is_inside(row, block_size) else row for row in rows)
        return self._inner.execute(_with(plan, rows))

    def close(self) -> None:
        self._inner.close()


def is_inside(row: Row, block_size: int) -> bool:
    """Several tokens, the first of them not the first of a block."""
    return len(row.token_ids) > 1 and row.start % block_size > 0


def aligned(row: Row, block_size: int) -> Row:
    if not is_inside(row, block_size):
        return row
    start = row.start - row.start % block_size
    return row._replace(token_ids=[*row.history[start : row.start], *row.token_ids], start=start)


def _behind_first(row: Row) -> Row:
    return row._replace(token_ids=row.token_ids[1:], start=row.start + 1)


def _with(plan: BatchPlan, rows: Sequence[Row]) -> BatchPlan:
    return BatchPlan(plan.step, tuple(rows), plan.needs, plan.reason)
