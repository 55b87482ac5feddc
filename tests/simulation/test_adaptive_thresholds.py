"""Thresholds that follow the traffic against thresholds of one: the emulated A100 pair, 6.0 and 27.9 ms.

The traffic is the issue's: a routing probability that steps between .1 and .5, bursts to 64 requests and
down to 4. Whole seconds of the simulated clock are compared, so the figures are the same on any machine.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from router_backend.planner.controller import Cause
from router_backend.simulation.closed_loop import Pair
from tests.simulation.adaptive_loop import AdaptiveLoop, Traffic, adaptive, fixed

A100 = Pair(((0.006,), (0.0279,)), 0.35)
PERIOD_S = 10


def alternating(now: float) -> float:
    return 0.1 if int(now / PERIOD_S) % 2 == 0 else 0.5


def bursts(now: float) -> int:
    """Not in step with the routing, so that every mixture of the two comes up."""
    return 64 if int(now / 15.0) % 2 == 0 else 4


def gains(better: AdaptiveLoop, worse: AdaptiveLoop) -> list[float]:
    """Relative gain in tokens in each period."""
    totals = zip(*([0, *loop.by_second][::PERIOD_S] for loop in (better, worse)), strict=True)
    return [(after[0] - before[0]) / (after[1] - before[1]) - 1.0 for before, after in pairwise(totals)]


def compared(traffic: Traffic) -> tuple[AdaptiveLoop, AdaptiveLoop, float]:
    """Both loops, served, and the gain in tokens over all of the time."""
    ours, ones = adaptive(A100, traffic), fixed(A100, traffic)
    return ours, ones, ours.serve() / ones.serve() - 1.0


def test_under_a_changing_route_probability_it_gains_three_percent_and_never_loses_three() -> None:
    ours, ones, gain = compared(Traffic(alternating, lambda now: 8, seconds=40.0))

    assert gain > 0.03
    assert min(gains(ours, ones)) > -0.03
    assert fixed(A100, Traffic(alternating, lambda now: 8, 40.0), large=5).serve() < ones.tally.tokens / 40.0


def test_in_bursts_too_it_never_loses_three_percent_and_gains_where_there_is_something_to_gain() -> None:
    ours, ones, gain = compared(Traffic(alternating, bursts, seconds=60.0))
    found = gains(ours, ones)

    assert gain > 0.029
    assert sum(found) / len(found) > 0.03
    assert min(found) > -0.03
    assert ours.planner is not None
    assert {Cause.COLD, Cause.PLAN, Cause.DRAINING, Cause.WATCHDOG} <= ours.planner.causes.keys()


@pytest.mark.parametrize(("route_p", "gain_min", "gain_max"), [(0.05, -0.001, 0.001), (0.35, 0.06, 0.082)])
def test_steady_traffic_gets_what_the_model_predicts(
    route_p: float, gain_min: float, gain_max: float
) -> None:
    _, _, gain = compared(Traffic(lambda now: route_p, lambda now: 8, seconds=20.0))

    assert gain_min < gain < gain_max
