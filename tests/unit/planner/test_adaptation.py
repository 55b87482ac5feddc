"""Estimate, plan and controller together, on traffic whose routing changes every ten seconds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from router_backend.planner.controller import Controller, Situation
from router_backend.planner.estimate import SystemEstimate
from router_backend.planner.threshold_table import plan_table
from router_backend.planner.thresholds import Thresholds
from tests.unit.planner.systems import sloped_pair

LIVE = 8
PRIOR = sloped_pair(0.35)
Gate = Callable[[float], Thresholds]
Seen = Callable[[int, tuple[int, int], float, float], None]


def alternating(now: float) -> float:
    return 0.1 if int(now / 10.0) % 2 == 0 else 0.5


def unseen(model: int, destinations: tuple[int, int], step_ms: float, now: float) -> None:
    """Nobody watches."""


def serve(
    route_probability: Callable[[float], float], seconds: float, gate: Gate, seen: Seen = unseen
) -> float:
    """Committed tokens per second of the emulated pair under R2R; `gate` gives thresholds at a time."""
    random = np.random.default_rng(1)
    waiting, batches, ends = [LIVE, 0], [0, 0], [0.0, 0.0]
    now, tokens = 0.0, 0
    while now < seconds:
        for model, threshold in enumerate(gate(now)):
            if not batches[model] and (waiting[model] >= threshold or (not any(batches) and waiting[model])):
                batches[model], waiting[model] = waiting[model], 0
                ends[model] = now + PRIOR.latencies[model].step_ms(batches[model]) / 1000.0
        now, model = min((ends[model], model) for model in (0, 1) if batches[model])
        batch, batches[model] = batches[model], 0
        moved = int(random.binomial(batch, route_probability(now))) if model == 0 else 0
        waiting[0] += batch - moved
        waiting[1] += moved
        tokens += batch - moved
        seen(model, (batch - moved, moved), PRIOR.latencies[model].step_ms(batch), now)
    return tokens / now


def serve_adaptively(route_probability: Callable[[float], float], seconds: float) -> float:
    """The same under the controller, solving whatever is due at once."""
    estimate = SystemEstimate(PRIOR, now=0.0)
    controller = Controller(plan_table(PRIOR, (LIVE,)), now=0.0)
    committed = 0

    def situation(now: float) -> Situation:
        return Situation(LIVE, False, estimate.observed_steps(now))

    def gate(now: float) -> Thresholds:
        if due := controller.counts_due(LIVE, now):
            controller.accept(plan_table(estimate.system(now), due), now)
        return controller.decide(situation(now), now).thresholds

    def seen(model: int, destinations: tuple[int, int], step_ms: float, now: float) -> None:
        nonlocal committed
        estimate.observe(model, destinations, step_ms, now)
        controller.record(destinations[0], situation(now), now)

    return serve(route_probability, seconds, gate, seen)


def fixed(large_threshold: int) -> Gate:
    return lambda now: (1, large_threshold)


def test_the_emulated_loop_reaches_the_predicted_throughput() -> None:
    assert serve(lambda now: 0.35, 60.0, fixed(5)) == pytest.approx(378.5, rel=0.01)


def test_under_changing_traffic_the_controller_beats_ones_where_fixed_thresholds_lose() -> None:
    ones = serve(alternating, 60.0, fixed(1))

    assert serve_adaptively(alternating, 60.0) / ones > 1.015
    assert serve(alternating, 60.0, fixed(5)) / ones < 0.97
    assert serve(alternating, 60.0, fixed(8)) / ones < 0.75


@pytest.mark.parametrize(("route_probability", "gain_min"), [(0.05, -0.03), (0.35, 0.03), (0.7, 0.2)])
def test_under_steady_traffic_the_controller_is_never_much_worse_and_often_better(
    route_probability: float, gain_min: float
) -> None:
    def steady(now: float) -> float:
        return route_probability

    ratio = serve_adaptively(steady, 30.0) / serve(steady, 30.0, fixed(1))

    assert ratio - 1.0 > gain_min
