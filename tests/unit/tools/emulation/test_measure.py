"""Figures from arrivals that were written by hand."""

from __future__ import annotations

import pytest

from tools.emulation.closed_loop import Arrival, ClosedLoopError
from tools.emulation.measure import gaps_s, launches_in, mean_batch, throughput
from tools.metrics_page import samples_in

STEADY = [Arrival(0.1 * k, 1, k % 5 == 4) for k in range(1, 100)]
"""One token each 0.1 s, requests of five tokens ending at 0.4, 0.9, ..."""
PAGE = """\
token_router_steps_total{model="small",version="1"} 10
token_router_batch_rows_total{model="small",version="1"} 25
token_router_steps_total{model="large",version="1"} 4
token_router_batch_rows_total{model="large",version="1"} 4
token_router_steps_total{model="large_2",version="1"} 2
token_router_batch_rows_total{model="large_2",version="1"} 5
token_router_tokens_committed_total{model="small",version="1"} 7
"""


def test_a_window_counts_whole_requests() -> None:
    halves = [Arrival(0.0, 0, True), Arrival(1.0, 3, False), Arrival(2.0, 3, True), Arrival(2.9, 50, False)]

    assert throughput([STEADY], 2.0, 5.0) == pytest.approx(10.0)
    assert throughput([STEADY, halves], 0.0, 3.0) == pytest.approx(10.0 + 3.0)


def test_a_client_whose_first_request_ends_in_the_window_counts_from_there() -> None:
    late = [Arrival(1.0, 9, True), Arrival(2.0, 4, True)]

    assert throughput([late], 0.5, 2.5) == pytest.approx(4.0)


def test_a_client_of_which_nothing_ended_counts_with_its_tokens() -> None:
    stream = [Arrival(1.0, 1, True), Arrival(2.5, 2, False), Arrival(3.5, 2, False)]

    assert throughput([stream], 2.0, 4.0) == pytest.approx(2.0)


@pytest.mark.parametrize("stream", [[], [Arrival(1.0, 1, True)]])
def test_a_window_without_any_token_is_an_error(stream: list[Arrival]) -> None:
    with pytest.raises(ClosedLoopError, match="no token in a whole window"):
        throughput([stream], 1.5, 2.0)


def test_gaps_are_between_tokens_of_one_answer_only() -> None:
    stream = [
        Arrival(1.0, 1, False),
        Arrival(1.5, 2, False),
        Arrival(1.6, 0, True),
        Arrival(3.0, 1, False),
        Arrival(3.25, 1, True),
    ]

    assert gaps_s(stream, 0.0) == [0.5, 0.0, 0.25]
    assert gaps_s(stream, 2.0) == [0.25]


def test_the_mean_batch_is_rows_per_launch_of_all_replicas_since_the_first_look() -> None:
    before, after = launches_in([]), launches_in(samples_in(PAGE))

    assert after == {"small": (10.0, 25.0), "large": (6.0, 9.0)}
    assert mean_batch(before, after) == (2.5, 1.5)
    assert mean_batch(after, after) == (0.0, 0.0)
