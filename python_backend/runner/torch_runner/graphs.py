"""Steps that are captured once and replayed: forward, logits, signals and router heads in one graph.

Owns the tensors that a graph reads and the graphs themselves. Must never run a step that fits no captured
shape: `columns` says None and the caller runs it eagerly. What captures is given from outside: CUDA
graphs on a GPU; in tests, calls that are repeated into the same memory. `CudaCapture` has not run: no GPU was
at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import torch

from python_backend.runner.torch_runner.buckets import Bucket, Grid, Padded, Tables, padded
from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.model import Model
from python_backend.runner.torch_runner.packing import PackedStep
from python_backend.runner.torch_runner.step_numbers import Columns, StepNumbers
from python_backend.runner.torch_runner.table_attention import TableAttention, TableGroup
from router_backend.scheduler.batch import Row

WARM_UP_RUNS = 2
"""Before a capture: libraries choose their kernels and take their workspaces on a first call."""

Run = Callable[[], Columns]


class Capture(Protocol):
    def __call__(self, run: Run) -> Run:
        """Capture what `run` does; the answer does it again, and fills the same tensors with new numbers."""
        ...


class CudaCapture:
    """CUDA graphs that share one pool of memory. Not run on hardware."""

    def __init__(self) -> None:
        self._pool: Any = None

    def __call__(self, run: Run) -> Run:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            columns = run()
        self._pool = graph.pool()

        def replay() -> Columns:
            graph.replay()
            return columns

        return replay


@dataclass(frozen=True, slots=True)
class GraphSettings:
    grid: Grid
    tables: Tables
    spare_block: int
    """Behind the pool; what padding writes goes there."""


@dataclass(slots=True)
class CapturedStep:
    """The memory of one shape, and its graph once there is one."""

    step: PackedStep
    group: TableGroup
    replay: Run | None = None

    def fill(self, given: Padded) -> None:
        """Copy a step's numbers to where the graph reads them."""
        targets = (self.step.tokens, self.step.positions, self.step.slots, self.group.tables, self.group.ends)
        for target, source in zip(targets, given, strict=True):
            target.copy_(torch.from_numpy(source))


@dataclass(slots=True)
class GraphedSteps:
    """Replays the steps of one engine. One thread."""

    settings: GraphSettings
    model: Model
    numbers: StepNumbers
    attention: TableAttention
    capture: Capture
    _captured: dict[Bucket, CapturedStep] = field(default_factory=dict)
    replays: int = 0

    def columns(self, rows: Sequence[Row], pool: KvPool) -> Columns | None:
        """Every number of the sampling rows, valid until the next step; None where no captured shape fits,
        and where drafts are to be read: a captured step keeps the logits of last tokens only.

        A shape that was not captured at the start is captured when it is first met.
        """
        shape = self.settings.grid.fitting(rows)
        if shape is None or any(row.draft for row in rows):
            return None
        bucket = Bucket(*shape, self.settings.tables.columns(max(row.end for row in rows)))
        columns = self._replayed(bucket, rows, pool)
        self.replays += 1
        return columns.rows([index for index, row in enumerate(rows) if row.is_sampling])

    def capture_all(self, pool: KvPool) -> None:
        """Capture every shape, where shapes do not depend on lengths; no answer then waits for one."""
        if not self.attention.is_length_bound:
            columns = self.settings.tables.columns(1)
            for rows, width in self.settings.grid.shapes:
                self._replayed(Bucket(rows, width, columns), (), pool)

    def _replayed(self, bucket: Bucket, rows: Sequence[Row], pool: KvPool) -> Columns:
        given = padded(rows, bucket, self.settings.tables.block_size, self.settings.spare_block)
        self.attention.prepare(bucket, given)
        if bucket not in self._captured:
            self._captured[bucket] = self._step_of(bucket)
        captured = self._captured[bucket]
        captured.fill(given)
        if captured.replay is None:
            captured.replay = self.capture(lambda: self._run(captured.step, pool))
        return captured.replay()

    def _run(self, step: PackedStep, pool: KvPool) -> Columns:
        hidden = self.model.forward(step, pool)
        return self.numbers.every(hidden, self.model.logits(hidden))

    def _step_of(self, bucket: Bucket) -> CapturedStep:
        rows, width, columns = bucket
        zeros = partial(torch.zeros, dtype=torch.int64, device=self.model.device)
        positions, count = zeros(rows * width), rows * width
        group = TableGroup(self.attention, bucket, zeros((rows, columns)), zeros(rows), positions)
        sampled = torch.arange(width - 1, count, width, device=self.model.device)
        return CapturedStep(PackedStep(zeros(count), positions, zeros(count), (group,), sampled), group)
