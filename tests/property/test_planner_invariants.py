"""What must hold for every system: bounds, conservation, independence of units."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router_backend.planner.barrier import BarrierMode, predict_barrier
from router_backend.planner.chain import Clock, solve_chain
from router_backend.planner.latency import StepLatency
from router_backend.planner.prediction import summarise
from router_backend.planner.routing import Routing, discard_and_return, discard_and_stay
from router_backend.planner.system import System
from router_backend.planner.thresholds import feasible_thresholds, plan
from router_backend.planner.throughput import predict, ticks_of, totals_of

pytestmark = pytest.mark.filterwarnings("ignore:native chain solver is not built:RuntimeWarning")

PROBABILITIES = st.integers(0, 20).map(lambda k: k / 20)


@st.composite
def pairs(draw: st.DrawFn) -> System:
    """Two models with whole-millisecond steps that may grow with the batch, under R2R or R-Stitch."""
    leave = draw(PROBABILITIES)
    routing = draw(
        st.sampled_from([discard_and_return(leave), discard_and_stay(leave, max(draw(PROBABILITIES), 0.1))])
    )
    small, large = draw(st.integers(1, 4)), draw(st.integers(4, 12))
    slope = draw(st.integers(0, 2))
    return System(
        routing, tuple(StepLatency(((1, float(ms)), (2, float(ms + slope)))) for ms in (small, large))
    )


def scaled(system: System, factor: float) -> System:
    latencies = tuple(
        StepLatency(tuple((b, ms * factor) for b, ms in one.points)) for one in system.latencies
    )
    return System(system.routing, latencies)


@settings(max_examples=25, deadline=None)
@given(pairs(), st.integers(1, 5), st.data())
def test_every_prediction_keeps_within_its_bounds(
    system: System, concurrency: int, data: st.DataObject
) -> None:
    thresholds = data.draw(st.sampled_from(list(feasible_thresholds(concurrency, (concurrency,) * 2))))

    seen = predict(system, thresholds, concurrency)

    fastest_ms = min(one.step_ms(1) for one in system.latencies)
    assert 0.0 < seen.throughput <= 1000.0 * concurrency / fastest_ms + 1e-6
    assert all(-1e-9 <= share <= 1.0 + 1e-9 for share in seen.busy_share)
    assert sum(seen.busy_share) >= 1.0 - 1e-9
    for batch, threshold in zip(seen.mean_batch, thresholds, strict=True):
        assert batch == 0.0 or threshold - 1e-6 <= batch <= concurrency + 1e-6


@settings(max_examples=25, deadline=None)
@given(pairs(), st.integers(1, 4), st.data())
def test_tick_chain_and_event_chain_agree(system: System, concurrency: int, data: st.DataObject) -> None:
    thresholds = data.draw(st.sampled_from(list(feasible_thresholds(concurrency, (concurrency,) * 2))))
    ticks = ticks_of(system, concurrency)

    event, tick = (
        summarise(
            thresholds,
            totals_of(solve_chain(system, thresholds, ticks, clock), ticks.quantum_ms),
            system.routing,
        ).throughput
        for clock in (Clock.EVENT, Clock.TICK)
    )

    assert tick == pytest.approx(event, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(pairs(), st.integers(1, 4), st.sampled_from([0.5, 3.0]))
def test_steps_twice_as_long_halve_the_throughput_of_every_vector(
    system: System, concurrency: int, factor: float
) -> None:
    before, after = plan(system, concurrency), plan(scaled(system, factor), concurrency)

    for one in before.predictions:
        other = after.prediction(one.thresholds)
        assert other is not None
        assert other.throughput == pytest.approx(one.throughput / factor, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.integers(1, 4))
def test_the_best_threshold_does_not_depend_on_keeping_or_discarding_tokens(
    twentieths: int, concurrency: int
) -> None:
    routing = discard_and_return(twentieths / 20)
    latencies = (StepLatency(((1, 2.0),)), StepLatency(((1, 9.0),)))
    keep_all = Routing(routing.probabilities, ((1.0, 1.0), (1.0, 1.0)))

    discarded = plan(System(routing, latencies), concurrency)
    kept = plan(System(keep_all, latencies), concurrency)

    for one in discarded.predictions:
        other = kept.prediction(one.thresholds)
        assert other is not None
        gained = other.throughput / kept.eager.throughput
        assert gained == pytest.approx(one.throughput / discarded.eager.throughput, rel=1e-6)


@settings(max_examples=20, deadline=None)
@given(pairs(), st.integers(1, 6))
def test_a_barrier_never_beats_the_sum_of_what_the_models_could_do(system: System, concurrency: int) -> None:
    fastest_ms = min(one.step_ms(1) for one in system.latencies)

    for mode in BarrierMode:
        assert 0.0 < predict_barrier(system, mode, concurrency) <= 1000.0 * concurrency / fastest_ms + 1e-6
