"""Count-level simulation of many threshold vectors at once, for systems whose chain is too large.

Same rules as the chain (arXiv:2610.12242, Appendix D) on the latencies as they are, without a quantum.
Every row of the arrays is one replica of one candidate; a turn takes each row to its next completion.
Deterministic: the same seed gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from router_backend.core.errors import ConfigError
from router_backend.native import FloatArray
from router_backend.planner.chain import checked_thresholds
from router_backend.planner.latency import step_table
from router_backend.planner.prediction import Prediction, Totals, summarise
from router_backend.planner.system import System, checked_concurrency

Counts = npt.NDArray[np.int64]

# Completions closer than this are one instant: sums of floats that should be equal are not.
SAME_INSTANT_MS = 1e-6
# Candidates that `simulate_best` looks at twice.
FINALISTS = 64


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to simulate: the error shrinks with the square root of replicas x turns.

    The default keeps the throughput within 0.5 % at a concurrency of 8 or more.
    """

    turns: int = 3000
    warmup_turns: int = 200
    replicas: int = 32

    def short(self) -> Effort:
        """A sixteenth of the work, to rule candidates out."""
        return Effort(max(self.turns // 4, 1), self.warmup_turns, max(self.replicas // 4, 1))

    def __post_init__(self) -> None:
        if self.turns < 1 or self.warmup_turns < 0 or self.replicas < 1:
            raise ConfigError("effort: turns and replicas must be at least 1, warmup_turns 0 or more")


@dataclass(slots=True, eq=False)
class _Rows:
    """State of R rows: requests waiting and running and milliseconds left, each [R, M]."""

    thresholds: Counts
    caps: Counts
    step_ms: FloatArray
    waiting: Counts
    running: Counts
    left_ms: FloatArray

    def launch(self) -> None:
        """Start every idle model whose queue has reached its threshold."""
        ready = (self.running == 0) & (self.waiting >= self.thresholds)
        batch = np.where(ready, np.minimum(self.waiting, self.caps), 0)
        self.waiting -= batch
        self.running += batch
        rows, models = np.nonzero(ready)
        self.left_ms[rows, models] = self.step_ms[models, batch[rows, models] - 1]

    def advance(self) -> tuple[FloatArray, Counts]:
        """Go to each row's next completion; the milliseconds passed [R] and the requests done [R, M]."""
        elapsed_ms = np.where(self.running > 0, self.left_ms, np.inf).min(axis=1)
        self.left_ms -= elapsed_ms[:, None]
        done = np.where(self.left_ms <= SAME_INSTANT_MS, self.running, 0)
        self.running -= done
        return elapsed_ms, done

    def arrive(self, done: Counts, routing: FloatArray, random: np.random.Generator) -> None:
        """Queue what has completed where its row of P sends it."""
        for model, row in enumerate(routing):
            self.waiting += random.multinomial(done[:, model], row)


class _Sums:
    """What each row has done since the warm-up."""

    def __init__(self, rows: int, models: int) -> None:
        self.elapsed_ms = np.zeros(rows)
        self.steps, self.completions = np.zeros((rows, models)), np.zeros((rows, models))
        self.busy_ms, self.present_ms = np.zeros((rows, models)), np.zeros((rows, models))

    def add(self, before: tuple[Counts, Counts], elapsed_ms: FloatArray, done: Counts) -> None:
        waiting, running = before
        self.elapsed_ms += elapsed_ms
        self.steps += done > 0
        self.completions += done
        self.busy_ms += elapsed_ms[:, None] * (running > 0)
        self.present_ms += elapsed_ms[:, None] * (waiting + running)

    def of_candidate(self, rows: slice) -> Totals:
        """The replicas of one candidate together."""
        return Totals(
            elapsed_ms=float(self.elapsed_ms[rows].sum()),
            steps=self.steps[rows].sum(axis=0),
            completions=self.completions[rows].sum(axis=0),
            busy_ms=self.busy_ms[rows].sum(axis=0),
            present_ms=self.present_ms[rows].sum(axis=0),
        )


def simulate(
    system: System,
    candidates: Sequence[Sequence[int]],
    concurrency: int,
    seed: int,
    effort: Effort | None = None,
) -> list[Prediction]:
    """Predicted operation of every candidate threshold vector, in the order given."""
    effort = effort or Effort()
    checked_concurrency(concurrency)
    checked = [checked_thresholds(system, candidate, concurrency) for candidate in candidates]
    rows = _start(system, np.repeat(np.array(checked), effort.replicas, axis=0), concurrency)
    sums = _run(rows, np.array(system.routing.probabilities), np.random.default_rng(seed), effort)
    return [
        summarise(
            thresholds,
            sums.of_candidate(slice(i * effort.replicas, (i + 1) * effort.replicas)),
            system.routing,
        )
        for i, thresholds in enumerate(checked)
    ]


def simulate_best(
    system: System, candidates: Sequence[Sequence[int]], concurrency: int, seed: int, effort: Effort
) -> list[Prediction]:
    """As `simulate`, with the full effort only for the first candidate and those that could be best.

    A short run of all comes first; the others keep its figures, which are rougher (about 2 %).
    """
    if len(candidates) <= FINALISTS:
        return simulate(system, candidates, concurrency, seed, effort)
    predictions = simulate(system, candidates, concurrency, seed, effort.short())
    ranked = sorted(range(1, len(predictions)), key=lambda i: -predictions[i].throughput)
    finalists = [0, *ranked[: FINALISTS - 1]]
    finals = simulate(system, [candidates[i] for i in finalists], concurrency, seed, effort)
    for i, final in zip(finalists, finals, strict=True):
        predictions[i] = final
    return predictions


def _start(system: System, thresholds: Counts, concurrency: int) -> _Rows:
    """All requests wait at model 0 of every row, as in the chain."""
    waiting = np.zeros(thresholds.shape, dtype=np.int64)
    waiting[:, 0] = concurrency
    rows = _Rows(
        thresholds=thresholds,
        caps=np.array(system.caps(concurrency)),
        step_ms=step_table(system.latencies, concurrency),
        waiting=waiting,
        running=np.zeros_like(waiting),
        left_ms=np.zeros(waiting.shape),
    )
    rows.launch()
    return rows


def _run(rows: _Rows, routing: FloatArray, random: np.random.Generator, effort: Effort) -> _Sums:
    sums = _Sums(*rows.waiting.shape)
    for turn in range(-effort.warmup_turns, effort.turns):
        before = rows.waiting.copy(), rows.running.copy()
        elapsed_ms, done = rows.advance()
        if turn >= 0:
            sums.add(before, elapsed_ms, done)
        rows.arrive(done, routing, random)
        rows.launch()
    return sums
