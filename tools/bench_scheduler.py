"""How long one turn of the scheduler takes, without any model.

`python -m tools.bench_scheduler [--json]`: a turn is plan + apply with hand-written runner outputs, at
several numbers of running and parked requests. Issue target: 64 running, 192 parked, at most 0.4 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence as Sequences
from dataclasses import asdict, dataclass

import numpy as np

from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import BatchPlan, StepOutput
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings

CASES = ((1, 0), (8, 24), (16, 48), (64, 0), (64, 192), (256, 768))
CUTOFF = 0.5
VOCAB = 100
ANSWER_TOKENS = 10_000


@dataclass(frozen=True, slots=True)
class Figure:
    running: int
    parked: int
    median_ms: float
    p99_ms: float


def prepared(running: int, parked: int) -> Scheduler:
    """A small model's scheduler with so many requests running and so many handed to the large one."""
    total = running + parked
    settings = SchedulerSettings(
        model=ModelIndex(0),
        thresholds=(1, 1),
        num_blocks=total * (64 + ANSWER_TOKENS // 16),
        block_size=16,
        length_max=2 * ANSWER_TOKENS,
        batch_max=max(running, parked),
        batch_tokens_max=64 * total,
        deadline_s=0.05,
    )
    chosen = Scheduler(settings, PolicyBook(Place(ModelIndex(0), ("small", "large"), ModelIndex(0), VOCAB)))
    for first, count, entropy in ((0, parked, 9.0), (parked, running, 0.0)):
        for number in range(first, first + count):
            chosen.admit(_request(number), 0.0)
        if count:
            turn(chosen, entropy)
    return chosen


def turn(chosen: Scheduler, entropy: float = 0.0) -> float:
    """One plan and one apply; seconds, without the time to write the runner's output by hand."""
    started_at = time.perf_counter()
    plan = chosen.plan(0.0)
    planned_at = time.perf_counter()
    assert isinstance(plan, BatchPlan)
    rows = len(plan.rows)
    output = StepOutput(np.full(rows, 5), entropy=np.full(rows, entropy, dtype=np.float32))
    resumed_at = time.perf_counter()
    chosen.apply(plan, output, 0.0)
    return (planned_at - started_at) + (time.perf_counter() - resumed_at)


def measured(running: int, parked: int, turns: int) -> Figure:
    chosen = prepared(running, parked)
    times_ms = [1e3 * turn(chosen) for _ in range(turns)]
    gauges = chosen.gauges()
    assert (gauges["ready"], gauges["parked"]) == (running, parked), gauges
    return Figure(running, parked, statistics.median(times_ms), float(np.percentile(times_ms, 99)))


def _request(number: int) -> Request:
    policy = PolicySpec("r_stitch", (("cutoff", CUTOFF),))
    return Request(RequestId(f"r{number}"), tuple(range(30)), ANSWER_TOKENS, policy=policy)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.bench_scheduler", description=__doc__)
    parser.add_argument("--turns", type=int, default=500, help="turns per case (default 500)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def main(argv: Sequences[str] | None = None) -> int:
    """Print the table; 0."""
    options = _parser().parse_args(argv)
    figures = [measured(running, parked, options.turns) for running, parked in CASES]
    if options.json:
        print(json.dumps({"rows": [asdict(figure) for figure in figures]}))
        return 0
    print(f"{'running':>8} {'parked':>8} {'median ms':>10} {'p99 ms':>8}")
    for figure in figures:
        print(f"{figure.running:>8} {figure.parked:>8} {figure.median_ms:>10.3f} {figure.p99_ms:>8.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
