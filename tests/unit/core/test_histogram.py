"""Observations by size, also when one thread observes and another reads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from router_backend.core.histogram import REMEMBERED_MAX, Histogram, HistogramCounts

OBSERVED = 150_000


@contextmanager
def eager_threads() -> Iterator[None]:
    """They take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_an_observation_counts_at_the_first_bound_that_it_does_not_exceed() -> None:
    histogram = Histogram((0.5, 2.0))
    for value, times in ((0.5, 1), (1.0, 3), (4.0, 2)):
        histogram.observe(value, times)

    assert histogram.counts() == histogram.counts() == HistogramCounts((0.5, 2.0), (1, 3, 2), 11.5)


def test_what_nobody_reads_is_counted_by_who_observes() -> None:
    histogram = Histogram((1.0,))
    for _ in range(3 * REMEMBERED_MAX):
        histogram.observe(1.0)

    assert len(histogram._remembered) <= REMEMBERED_MAX
    assert histogram.counts() == HistogramCounts((1.0,), (3 * REMEMBERED_MAX, 0), 3.0 * REMEMBERED_MAX)


@pytest.mark.parametrize("observed_at_a_time", [1, 2 * REMEMBERED_MAX])
def test_with_a_reader_in_another_thread_nothing_is_lost_or_doubled(observed_at_a_time: int) -> None:
    """The second way the observer counts what it observes while the reader counts too."""
    histogram, over = Histogram((1.0,)), threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not over.is_set():
            seen.append(sum(histogram.counts().counts))
            over.wait(1e-6 * observed_at_a_time)

    with eager_threads():
        reader = threading.Thread(target=read)
        reader.start()
        for number in range(OBSERVED):
            histogram.observe(2.0 * (number % 2))
        over.set()
        reader.join()

    assert histogram.counts() == HistogramCounts((1.0,), (OBSERVED // 2, OBSERVED // 2), float(OBSERVED))
    assert seen == sorted(seen)
