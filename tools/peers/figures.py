"""What one cell comes to: throughput, latency, gaps between tokens, CPU time and memory.

Throughput is committed tokens per second from the first question until the first client has its whole
answer, prompts included: until then as many requests are live as the cell says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tools.peers.closed_loop import Client
from tools.peers.processes import Usage
from tools.peers.workload import Workload


class NothingMeasuredError(ValueError):
    """A cell ended before its first token."""


@dataclass(frozen=True, slots=True)
class Row:
    """None where the time was over before there was anything to tell."""

    system: str
    concurrency: int
    output_tokens: int
    context: int
    throughput: float
    latency_p50_s: float | None
    latency_p99_s: float | None
    ttft_p50_s: float
    gap_p50_ms: float
    cpu_s_per_token: float
    peak_rss_mb: float
    large_share: float


def row(system: str, workload: Workload, clients: Sequence[Client], usage: Usage) -> Row:
    """The figures of one cell; NothingMeasuredError when no token came in time."""
    arrivals = sorted(itertools.chain(*(answer.arrivals for one in clients for answer in one.answers)))
    if not arrivals:
        raise NothingMeasuredError(f"{system}: no token within {workload.seconds_max:g} s")
    first = [one.answers[0] for one in clients]
    began_at = min(one.asked_at for one in first)
    whole_at = [one.arrivals[-1][0] for one in first if one.is_whole]
    until = min(whole_at, default=arrivals[-1][0])
    counted = sum(tokens for at, tokens, _ in arrivals if at <= until)
    everything = sum(tokens for _, tokens, _ in arrivals)
    p50, p99 = _latencies_s(clients)
    return Row(
        system,
        workload.concurrency,
        workload.output_tokens,
        workload.context,
        counted / (until - began_at),
        p50,
        p99,
        _median(one.arrivals[0][0] - one.asked_at for one in first if one.arrivals),
        1000.0 * _median(_gaps_s(clients)),
        usage.cpu_s / everything,
        usage.peak_rss_mb,
        sum(large for _, _, large in arrivals) / everything,
    )


def median_row(rows: Sequence[Row]) -> Row:
    """Field by field; a latency that most runs have not is None."""
    first = rows[0]
    measured = {field.name for field in fields(Row)} - {"system", "concurrency", "output_tokens", "context"}
    return replace(first, **{name: _middle([getattr(one, name) for one in rows]) for name in measured})


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if 2 * len(known) > len(values) else None


def _latencies_s(clients: Sequence[Client]) -> tuple[float | None, float | None]:
    found = [
        answer.arrivals[-1][0] - answer.asked_at
        for one in clients
        for answer in one.answers
        if answer.is_whole
    ]
    if not found:
        return None, None
    p50, p99 = np.percentile(found, (50, 99))
    return float(p50), float(p99)


def _gaps_s(clients: Sequence[Client]) -> Iterable[float]:
    """Seconds per token between arrivals of one answer."""
    for answer in itertools.chain(*(one.answers for one in clients)):
        for before, after in itertools.pairwise(answer.arrivals):
            yield from [(after[0] - before[0]) / after[1]] * after[1]


def _median(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.median(found)) if found else float("nan")
