"""CPU time to park a request and take it up again with one token of a peer, by context length.

`python -m tools.bench_resume [--json]`: a visit is what one hand-off costs a small model's subserver
apart from the model itself: apply (discard and send), resume, plan, and packing the step's index arrays.
It should not grow with the context: no prefix is matched and nothing is allocated anew on a return.
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
import torch

from python_backend.runner.torch_runner.packing import Layout, pack
from router_backend.core.effects import Effect, Send
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId
from router_backend.handoff.message import Handoff
from router_backend.native import kernels
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import BatchPlan, StepOutput
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings

CONTEXTS = (256, 1024, 4096, 8192)
NAMES = ("small", "large")
BLOCK_SIZE = 16
VOCAB = 100
UNCERTAIN, SURE = 9.0, 0.0


@dataclass(frozen=True, slots=True)
class Figure:
    context: int
    cpu_us: float
    prefix_lookups_on_return: int


class Pair:
    """Two schedulers and one request that goes to and fro; every visit adds one token of the large model."""

    def __init__(self, context: int, visits: int) -> None:
        self.small, self.large = (_scheduler(model, context, visits) for model in range(2))
        self._layout = Layout(BLOCK_SIZE, 1, torch.float32, is_paged=kernels.compiled() is not None)
        policy = PolicySpec("r_stitch", (("cutoff", 0.5),))
        prompt = tuple(index % VOCAB for index in range(context))
        self.small.admit(Request(RequestId("r"), prompt, visits + 100, policy=policy), 0.0)
        self._plan = self._planned()

    def visit(self) -> float:
        """CPU seconds of the small side for one hand-off and its return."""
        started_at = time.thread_time()
        (gone,) = _handoffs(self.small.apply(self._plan, _output(UNCERTAIN), 0.0))
        parked_at = time.thread_time()
        returned = self._answered(gone)
        resumed_at = time.thread_time()
        self.small.resume(returned, 0.0)
        self._plan = self._planned()
        return (parked_at - started_at) + (time.thread_time() - resumed_at)

    def _planned(self) -> BatchPlan:
        plan = self.small.plan(0.0)
        assert isinstance(plan, BatchPlan)
        pack(plan.rows, self._layout)
        return plan

    def _answered(self, handoff: Handoff) -> Handoff:
        self.large.resume(handoff, 0.0)
        plan = self.large.plan(0.0)
        assert isinstance(plan, BatchPlan)
        (returned,) = _handoffs(self.large.apply(plan, _output(SURE), 0.0))
        return returned


def _scheduler(model: int, context: int, visits: int) -> Scheduler:
    settings = SchedulerSettings(
        model=ModelIndex(model),
        thresholds=(1, 1),
        num_blocks=(context + visits) // BLOCK_SIZE + 64,
        block_size=BLOCK_SIZE,
        length_max=context + visits + 200,
        batch_max=8,
        batch_tokens_max=context + 8,
        deadline_s=0.05,
    )
    return Scheduler(settings, PolicyBook(Place(ModelIndex(model), NAMES, ModelIndex(0), VOCAB)))


def _output(entropy: float) -> StepOutput:
    return StepOutput(np.array([5]), entropy=np.array([entropy], dtype=np.float32))


def _handoffs(effects: list[Effect]) -> list[Handoff]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Handoff)
    ]


def measured(contexts: Sequences[int], visits: int) -> list[Figure]:
    """Median visit of each context; contexts take turns, so that a busy moment hits all alike."""
    pairs = [Pair(context, visits + 1) for context in contexts]
    for pair in pairs:
        pair.visit()
    rounds = [[pair.visit() for pair in pairs] for _ in range(visits)]
    lookups = [pair.small.counters.prefix_lookups_on_return for pair in pairs]
    columns = zip(contexts, zip(*rounds, strict=True), lookups, strict=True)
    return [
        Figure(context, round(1e6 * statistics.median(times), 2), lookup)
        for context, times, lookup in columns
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench_resume",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--visits", type=int, default=500, help="hand-offs per context (default 500)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def main(argv: Sequences[str] | None = None) -> int:
    """Print the table; 0."""
    options = _parser().parse_args(argv)
    figures = measured(CONTEXTS, options.visits)
    if options.json:
        print(json.dumps({"rows": [asdict(figure) for figure in figures]}))
        return 0
    print(f"{'context':>8} {'cpu us':>8} {'prefix lookups on return':>25}")
    for figure in figures:
        print(f"{figure.context:>8} {figure.cpu_us:>8.1f} {figure.prefix_lookups_on_return:>25}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
