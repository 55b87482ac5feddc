"""What a threshold vector is predicted to do, whichever way it was computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router_backend.native import FloatArray
from router_backend.planner.routing import Routing


@dataclass(frozen=True, slots=True, eq=False)
class Totals:
    """Sums over one stretch of operation (or means per transition); the arrays are [M]."""

    elapsed_ms: float
    steps: FloatArray
    completions: FloatArray
    busy_ms: FloatArray
    present_ms: FloatArray
    """Integral over time of the requests that wait for or run on each model."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One row of a plan; every tuple has one entry per model.

    throughput     committed tokens per second, all requests together
    mean_batch     mean requests in a batch at its launch
    busy_share     share of the time in which the model runs a step
    turnaround_ms  mean time from joining a model's queue to the end of that step (Little's law)
    gap_ms         mean gap before a token of the slowest kind of hop, discarded steps included
    """

    thresholds: tuple[int, ...]
    throughput: float
    mean_batch: tuple[float, ...]
    busy_share: tuple[float, ...]
    turnaround_ms: tuple[float, ...]
    gap_ms: float


def summarise(thresholds: tuple[int, ...], totals: Totals, routing: Routing) -> Prediction:
    """The prediction that follows from the totals."""
    tokens = float(totals.completions @ np.array(routing.tokens_per_step()))
    turnaround_ms = _ratios(totals.present_ms, totals.completions)
    return Prediction(
        thresholds=thresholds,
        throughput=1000.0 * tokens / totals.elapsed_ms,
        mean_batch=_ratios(totals.completions, totals.steps),
        busy_share=tuple(float(busy) for busy in totals.busy_ms / totals.elapsed_ms),
        turnaround_ms=turnaround_ms,
        gap_ms=_slowest_gap_ms(turnaround_ms, routing),
    )


def _ratios(amounts: FloatArray, counts: FloatArray) -> tuple[float, ...]:
    """amount / count, 0 where a model is never used."""
    pairs = zip(amounts, counts, strict=True)
    return tuple(float(amount / count) if count > 0.0 else 0.0 for amount, count in pairs)


def _slowest_gap_ms(turnaround_ms: tuple[float, ...], routing: Routing) -> float:
    """A hop from i that commits nothing makes its token wait for the step of i as well."""
    gaps = [0.0]
    for i, (row, commits) in enumerate(zip(routing.probabilities, routing.commits, strict=True)):
        for j, probability in enumerate(row):
            if probability > 0.0:
                gaps.append(turnaround_ms[j] + (turnaround_ms[i] if commits[j] == 0.0 else 0.0))
    return max(gaps)
