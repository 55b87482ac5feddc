"""A what-if run in figures: the real core on a manual clock beside the planner's prediction.

`fast` replaces the core by the planner's vectorised count-level simulation: no scheduler, no gaps, no
hand-off time, but millions of tokens in a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from router_backend.core.errors import ConfigError
from router_backend.planner.barrier import BarrierMode, predict_barrier
from router_backend.planner.latency import StepLatency, step_table
from router_backend.planner.monte_carlo import Effort, simulate
from router_backend.planner.routing import discard_and_return, discard_and_stay
from router_backend.planner.system import System
from router_backend.planner.thresholds import plan
from router_backend.scheduler.rounds import Mode
from router_backend.simulation.closed_loop import NAMES, ClosedLoop, Load, Pair, Scheduling
from tools.simulated.prediction import prediction
from tools.timeline.record import Timeline

Clock = Callable[[], float]

BARRIERS = {Mode.STEP_SYNC: BarrierMode.STEP_SYNC, Mode.MODEL_SYNC: BarrierMode.SLOWEST_FIRST}
FAST_REPLICAS = 512
FAST_WARMUP_TURNS = 200


@dataclass(frozen=True, slots=True)
class Question:
    """What if? Times in ms. `thresholds` None = the planner's choice; `deadline_ms` inf = none."""

    latencies: tuple[StepLatency, StepLatency]
    route_p: float
    return_p: float
    load: Load
    thresholds: tuple[int, int] | None
    mode: Mode
    handoff_ms: float
    deadline_ms: float

    def system(self) -> System:
        """The pair as the planner sees it."""
        stays = self.return_p < 1.0
        routing = discard_and_stay(self.route_p, self.return_p) if stays else discard_and_return(self.route_p)
        return System(routing, self.latencies)

    def pair(self) -> Pair:
        """The pair as the simulation runs it."""
        small, large = (step_table(self.latencies, self.load.clients) / 1e3).tolist()
        return Pair((tuple(small), tuple(large)), self.route_p, self.return_p, self.handoff_ms / 1e3)


@dataclass(frozen=True, slots=True)
class Answer:
    """Throughputs in committed tok/s; `mean_batch` and `launches` (by reason) by model.

    `predicted` is None where the planner has no figure; it knows of no hand-off time and of no deadline.
    `wall_s` is what the run itself took.
    """

    mode: str
    n: int
    thresholds: tuple[int, ...]
    throughput: float
    predicted: float | None
    ratio: float | None
    gap_p50_ms: float | None
    gap_p99_ms: float | None
    mean_batch: dict[str, float]
    launches: dict[str, dict[str, int]]
    tokens: int
    simulated_s: float
    wall_s: float
    method: str

    @property
    def tokens_per_wall_s(self) -> float:
        return self.tokens / self.wall_s


def answer(question: Question, clock: Clock = time.perf_counter) -> tuple[Answer, Timeline]:
    """Run the real core; the answer and its last batches."""
    thresholds = chosen_thresholds(question)
    scheduling = Scheduling(thresholds, question.mode, question.deadline_ms / 1e3)
    loop = ClosedLoop(question.pair(), question.load, scheduling)
    began_at = clock()
    tally = loop.run()
    wall_s = clock() - began_at
    predicted = predicted_throughput(question, thresholds)
    gap_p50_ms, gap_p99_ms = _percentiles_ms(tally.gaps_s)
    reasons = [{one.value: count for one, count in counts.items()} for counts in tally.launches]
    found = Answer(
        question.mode.value,
        question.load.clients,
        thresholds,
        tally.throughput,
        predicted,
        tally.throughput / predicted if predicted else None,
        gap_p50_ms,
        gap_p99_ms,
        dict(zip(NAMES, tally.mean_batch, strict=True)),
        dict(zip(NAMES, reasons, strict=True)),
        tally.tokens + question.load.warmup_tokens,
        tally.ended_at,
        wall_s,
        "core",
    )
    picture = Timeline(_title(found), NAMES, tuple(loop.launches))
    return found, picture.since_start(0.0, math.inf)


def _percentiles_ms(gaps_s: Sequence[float]) -> tuple[float | None, float | None]:
    """p50 and p99; None for both where no answer has two tokens."""
    if not gaps_s:
        return None, None
    p50, p99 = (1e3 * np.percentile(gaps_s, (50, 99))).tolist()
    return p50, p99


def fast_answer(question: Question, clock: Clock = time.perf_counter) -> Answer:
    """The same by the planner's Monte Carlo; ConfigError for what it does not know of."""
    if question.mode.is_barrier or question.handoff_ms or question.deadline_ms < float("inf"):
        raise ConfigError("--fast knows no barrier modes, no --handoff-ms and no --deadline-ms")
    thresholds, n, system = chosen_thresholds(question), question.load.clients, question.system()
    turns = max(1, round(question.load.tokens / FAST_REPLICAS / _tokens_per_turn(question, thresholds)))
    effort = Effort(turns, FAST_WARMUP_TURNS, FAST_REPLICAS)
    began_at = clock()
    (found,) = simulate(system, [thresholds], n, question.load.seed, effort)
    wall_s = clock() - began_at
    predicted = predicted_throughput(question, thresholds)
    return Answer(
        question.mode.value,
        n,
        thresholds,
        found.throughput,
        predicted,
        found.throughput / predicted if predicted else None,
        None,
        None,
        dict(zip(NAMES, found.mean_batch, strict=True)),
        {},
        question.load.tokens,
        question.load.tokens / found.throughput,
        wall_s,
        "monte_carlo",
    )


def chosen_thresholds(question: Question) -> tuple[int, int]:
    """Those asked for, else the planner's; ones in every mode but delayed batching."""
    if question.mode is not Mode.DELAYED:
        return (1, 1)
    if question.thresholds is not None:
        return question.thresholds
    small, large = plan(question.system(), question.load.clients).chosen.thresholds
    return small, large


def predicted_throughput(question: Question, thresholds: Sequence[int]) -> float | None:
    """The model's figure; None for thresholds that only a live clamp makes possible."""
    system, n = question.system(), question.load.clients
    if question.mode in BARRIERS:
        return predict_barrier(system, BARRIERS[question.mode], n)
    if sum(thresholds) - len(thresholds) >= n:
        return None
    return prediction(system, thresholds, n, question.load.seed).throughput


def _tokens_per_turn(question: Question, thresholds: Sequence[int]) -> float:
    """About how many tokens one completion commits."""
    short = Effort(turns=200, warmup_turns=20, replicas=8)
    (found,) = simulate(question.system(), [thresholds], question.load.clients, 0, short)
    per_step = question.system().routing.tokens_per_step()
    share = question.route_p / (question.route_p + question.return_p)
    completions = (1.0 - share, share)
    tokens = sum(one * per for one, per in zip(completions, per_step, strict=True))
    turns = sum(one / max(batch, 1.0) for one, batch in zip(completions, found.mean_batch, strict=True))
    return tokens / turns


def _title(found: Answer) -> str:
    name = ",".join(map(str, found.thresholds))
    return f"{found.mode}, thresholds {name}, {found.n} requests: {found.throughput:.1f} tok/s (simulated)"
