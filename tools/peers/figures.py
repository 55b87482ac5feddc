"""What one cell comes to: throughput, latency, gaps between tokens, CPU time and memory.

Throughput is committed tokens per second of a window, the median of the windows. The rest is of all windows
together: answers that ended in them, first tokens and gaps that fell into them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tools.peers.closed_loop import Answer, Watched, Window
from tools.peers.workload import Workload


class NothingMeasuredError(ValueError):
    """A cell in whose windows hardly a token came."""


@dataclass(frozen=True, slots=True)
class Row:
    """None where nothing of the kind happened in the windows: no answer ended, none began."""

    system: str
    concurrency: int
    output_tokens: int
    context: int
    throughput: float
    throughput_least: float
    throughput_most: float
    latency_mean_s: float
    """By Little's law: requests at once x tokens of an answer / throughput. Needs no answer to end."""
    latency_p50_s: float | None
    latency_p99_s: float | None
    ttft_p50_s: float | None
    gap_p50_ms: float | None
    cpu_s_per_token: float
    cpu_s_per_token_by_process: Mapping[str, float]
    peak_rss_mb: float
    large_share: float

    @property
    def cell(self) -> tuple[str, int, int, int]:
        return self.system, self.concurrency, self.output_tokens, self.context


def row(system: str, workload: Workload, seen: Watched) -> Row:
    """The figures of one cell; NothingMeasuredError when most windows are empty."""
    counts = np.array([_tokens(seen.answers, window) for window in seen.windows], dtype=float)
    lengths = np.array([window.ended_at - window.began_at for window in seen.windows])
    speeds, (tokens, large) = counts[:, 0] / lengths, counts.sum(axis=0)
    throughput = float(np.median(speeds))
    if not throughput:
        raise NothingMeasuredError(f"{system}: hardly a token in windows of {workload.window_s:g} s")
    whole = Window(seen.windows[0].began_at, seen.windows[-1].ended_at, seen.windows[-1].usage)
    p50, p99 = _quantiles(_latencies_s(seen.answers, whole), (50, 99))
    gap_s = _quantiles(_gaps_s(seen.answers, whole), (50,))[0]
    return Row(
        system,
        workload.concurrency,
        workload.output_tokens,
        workload.context,
        throughput,
        float(speeds.min()),
        float(speeds.max()),
        workload.concurrency * workload.output_tokens / throughput,
        p50,
        p99,
        _quantiles(_first_tokens_s(seen.answers, whole), (50,))[0],
        None if gap_s is None else 1000.0 * gap_s,
        sum(window.usage.cpu_s for window in seen.windows) / tokens,
        {name: seconds / tokens for name, seconds in _by_process(seen).items()},
        whole.usage.peak_rss_mb,
        large / tokens,
    )


def _tokens(answers: Iterable[Answer], window: Window) -> tuple[int, int]:
    """Committed in the window, and of these the large model's."""
    inside = [
        (tokens, large) for answer in answers for at, tokens, large in answer.arrivals if _is_in(window, at)
    ]
    return sum(tokens for tokens, _ in inside), sum(large for _, large in inside)


def _is_in(window: Window, at: float) -> bool:
    return window.began_at < at <= window.ended_at


def _latencies_s(answers: Iterable[Answer], window: Window) -> list[float]:
    return [
        answer.arrivals[-1][0] - answer.asked_at
        for answer in answers
        if answer.is_whole and answer.is_fresh and _is_in(window, answer.arrivals[-1][0])
    ]


def _first_tokens_s(answers: Iterable[Answer], window: Window) -> list[float]:
    return [
        answer.arrivals[0][0] - answer.asked_at
        for answer in answers
        if answer.is_fresh and answer.arrivals and _is_in(window, answer.arrivals[0][0])
    ]


def _gaps_s(answers: Iterable[Answer], window: Window) -> list[float]:
    """Seconds per token between arrivals of one answer."""
    found: list[float] = []
    for answer in answers:
        for before, after in itertools.pairwise(answer.arrivals):
            if _is_in(window, after[0]):
                found += [(after[0] - before[0]) / after[1]] * after[1]
    return found


def _by_process(seen: Watched) -> dict[str, float]:
    names = dict.fromkeys(name for window in seen.windows for name in window.usage.cpu_s_by_process)
    return {
        name: sum(window.usage.cpu_s_by_process.get(name, 0.0) for window in seen.windows) for name in names
    }


def _quantiles(values: list[float], percents: tuple[int, ...]) -> list[float | None]:
    if not values:
        return [None] * len(percents)
    return [float(value) for value in np.percentile(values, percents)]
