"""What a closed loop of clients saw, as figures.

A window counts whole requests of each client, from the end of the last one before it to the end of the
last one in it, because requests are drawn with the expected share of hand-offs and parts of them are not.
A client of which none ended in a window counts with the tokens that arrived.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tools.emulation.closed_loop import Arrival, Client, ClosedLoopError, run_clients
from tools.emulation.pair import NAMES, EmulatedPair, balanced_seeds
from tools.metrics_page import Sample, read
from tools.triton_server import TritonServer

PROMPT_TOKENS = 5
MAX_TOKENS = 40
"""Long enough that a new request is rare, short enough that a window holds some of every client."""
SEEDS = 512
WARM_UP_S = 1.5


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure: `repeat` windows of `seconds` each."""

    seconds: float
    repeat: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Throughput in committed tok/s: the median of the windows; gaps between tokens of one answer in ms;
    `mean_batch` rows per launch, by model."""

    throughput: float
    windows: tuple[float, ...]
    gap_p50_ms: float
    gap_p99_ms: float
    mean_batch: tuple[float, ...]


def measure(server: TritonServer, pair: EmulatedPair, concurrency: int, effort: Effort) -> Measured:
    """Let so many clients work; ClosedLoopError if one of them fails or nothing ends."""
    seeds = list(itertools.islice(balanced_seeds(pair, PROMPT_TOKENS, MAX_TOKENS), SEEDS))
    clients = [Client(itertools.cycle(_rotated(seeds, k)), MAX_TOKENS) for k in range(concurrency)]
    before = launches_in(read(server.metrics_url))
    began_at = time.perf_counter() + WARM_UP_S
    asyncio.run(run_clients(server.grpc_address, clients, WARM_UP_S + effort.seconds * effort.repeat))
    after = launches_in(read(server.metrics_url))
    edges = [began_at + effort.seconds * k for k in range(effort.repeat + 1)]
    streams = [client.arrivals for client in clients]
    windows = tuple(throughput(streams, *edge) for edge in itertools.pairwise(edges))
    gaps_ms = 1000.0 * np.array(list(itertools.chain(*(gaps_s(stream, began_at) for stream in streams))))
    p50, p99 = np.percentile(gaps_ms, (50, 99))
    return Measured(statistics.median(windows), windows, float(p50), float(p99), mean_batch(before, after))


def throughput(streams: Sequence[Sequence[Arrival]], start: float, end: float) -> float:
    """Tokens per second of all clients together, over whole requests."""
    return sum(_rate(stream, start, end) for stream in streams)


def _rate(stream: Sequence[Arrival], start: float, end: float) -> float:
    ends = [arrival.at for arrival in stream if arrival.is_last and arrival.at < end]
    first = max((at for at in ends if at <= start), default=min(ends, default=start))
    last = max(ends, default=start)
    if last <= first:
        first, last = start, end
    tokens = sum(arrival.tokens for arrival in stream if first < arrival.at <= last)
    if not tokens:
        raise ClosedLoopError("a client got no token in a whole window")
    return tokens / (last - first)


def gaps_s(stream: Sequence[Arrival], start: float) -> list[float]:
    """Seconds between the tokens of one answer, from `start` on; tokens of one response have no gap."""
    gaps: list[float] = []
    for before, after in itertools.pairwise(stream):
        if after.at >= start and not before.is_last and after.tokens:
            gaps += [after.at - before.at] + [0.0] * (after.tokens - 1)
    return gaps


Launches = dict[str, tuple[float, float]]
"""(steps, rows) since the start, by model; those of its replicas together."""


def launches_in(samples: Sequence[Sample]) -> Launches:
    """From one look at a metrics page."""
    return {
        model: (_count(samples, "steps_total", model), _count(samples, "batch_rows_total", model))
        for model in NAMES
    }


def _count(samples: Sequence[Sample], name: str, model: str) -> float:
    return sum(s.value for s in samples if s.name == name and s.labels["model"].partition("_")[0] == model)


def mean_batch(before: Launches, after: Launches) -> tuple[float, ...]:
    """Rows per launch between two looks, 0 for a model that did not run."""
    means = []
    for name in NAMES:
        steps, rows = (new - old for new, old in zip(after[name], before[name], strict=True))
        means.append(rows / steps if steps else 0.0)
    return tuple(means)


def _rotated(seeds: list[int], k: int) -> list[int]:
    """Client k's seeds: the same in every run, other ones than its neighbours'."""
    start = 31 * k % len(seeds)
    return seeds[start:] + seeds[:start]
