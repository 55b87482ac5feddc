"""Times single steps of the torch engine, without a scheduler.

A step's time depends on shapes and not on what the cache holds, so no prompt is computed first: each
row claims `context` tokens of an empty pool, and every repeat feeds the same positions again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from python_backend.runner.base import ModelRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row

BLOCK_SIZE = 16
WARM_UP_STEPS = 2


@dataclass(frozen=True, slots=True)
class StepShape:
    """`batch` rows, each `new_tokens` on a cache of `context` tokens; one new token is a decode step."""

    batch: int
    context: int
    new_tokens: int = 1

    @property
    def kind(self) -> str:
        return "decode" if self.new_tokens == 1 else "extend"

    @property
    def blocks_per_row(self) -> int:
        return -(-(self.context + self.new_tokens) // BLOCK_SIZE)


def settings_for(model_dir: Path, dtype: str, threads: int, shapes: list[StepShape]) -> TorchSettings:
    """An engine whose pool holds the largest of `shapes`."""
    blocks = max(shape.batch * shape.blocks_per_row for shape in shapes)
    return TorchSettings(
        model_dir, dtype=dtype, threads=threads, kv_tokens=blocks * BLOCK_SIZE, block_size=BLOCK_SIZE
    )


def step_plan(shape: StepShape, needs: Needs | None = None) -> BatchPlan:
    """The plan of one such step, greedy rows with blocks of their own."""
    return BatchPlan(0, tuple(_rows(shape)), needs or Needs(), LaunchReason.ALONE)


def step_times_ms(runner: ModelRunner, shape: StepShape, repeats: int) -> list[float]:
    """Wall milliseconds of `repeats` steps, after a warm-up."""
    plan = step_plan(shape)
    for _ in range(WARM_UP_STEPS):
        runner.execute(plan)
    return [_timed_ms(runner, plan) for _ in range(repeats)]


def median_step_ms(runner: ModelRunner, shape: StepShape, repeats: int) -> float:
    return round(statistics.median(step_times_ms(runner, shape, repeats)), 4)


def _rows(shape: StepShape) -> Iterator[Row]:
    for index in range(shape.batch):
        first = index * shape.blocks_per_row
        blocks = list(range(first, first + shape.blocks_per_row))
        token_ids = [1 + (index + offset) % 7 for offset in range(shape.new_tokens)]
        yield Row(RequestId(f"r{index}"), token_ids, shape.context, blocks, True, Sampling(), 0)


def _timed_ms(runner: ModelRunner, plan: BatchPlan) -> float:
    started_at = time.perf_counter()
    runner.execute(plan)
    return 1e3 * (time.perf_counter() - started_at)
