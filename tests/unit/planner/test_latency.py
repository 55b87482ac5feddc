"""Step latencies between and beyond the measured points, and as ticks."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency, constant, sloped, step_table
from router_backend.planner.rounding import (
    common_quantum_ms,
    exact_ticks,
    random_ticks,
    rounded_ticks,
    tick_table,
)
from router_backend.planner.system import System
from tests.unit.planner.systems import A100_PAIR, CONSTANT, SLOPED


def test_straight_lines_join_the_points_and_the_last_one_goes_on() -> None:
    latency = StepLatency(((2, 6.0), (4, 8.0), (8, 9.0)))

    assert [latency.step_ms(batch) for batch in (1, 2, 3, 4, 6, 8, 12)] == [6, 6, 7, 8, 8.5, 9, 10]


def test_a_last_segment_that_falls_is_not_continued() -> None:
    assert StepLatency(((1, 6.0), (4, 5.0))).step_ms(100) == 5.0


def test_one_point_holds_for_every_batch() -> None:
    assert step_table([constant(6.0), sloped(1.0, 0.5)], 3).tolist() == [[6.0, 6.0, 6.0], [1.0, 1.5, 2.0]]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ((), "steps: at least one measured batch size is needed"),
        (((0, 6.0),), r"steps\[0\].batch: must be at least 1, got 0"),
        (((1, 0.0),), r"steps\[0\].step_ms: must be above 0 ms, got 0"),
        (((1, float("inf")),), r"steps\[0\].step_ms: must be above 0 ms, got inf"),
        (((1, 6.0), (1, 7.0)), r"steps\[1\].batch: must be above 1, got 1"),
    ],
)
def test_points_that_cannot_be_measured_are_refused(
    points: tuple[tuple[int, float], ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        StepLatency(points)


def test_the_common_quantum_is_the_largest_that_fits_all() -> None:
    assert common_quantum_ms(step_table(CONSTANT, 4)) == pytest.approx(0.3)
    assert common_quantum_ms(step_table(SLOPED, 4)) == pytest.approx(0.1)


@pytest.mark.parametrize("step_ms", [6.0001234, 0.0004])
def test_measurements_finer_than_a_microsecond_share_no_quantum(step_ms: float) -> None:
    assert common_quantum_ms(np.array([[step_ms], [27.9]])) is None


def test_exact_ticks_are_whole_and_never_longer() -> None:
    ticks = exact_ticks(step_table(CONSTANT, 2), 0.3)

    assert ticks.floor_ticks.tolist() == [[20, 20], [93, 93]]
    assert not ticks.ceil_probability.any()
    assert ticks.concurrency == 2


@pytest.mark.parametrize("quantum_ms", [1.0, 50.0])
def test_a_quantum_that_does_not_fit_is_refused(quantum_ms: float) -> None:
    with pytest.raises(ConfigError, match="is not a whole multiple of"):
        exact_ticks(step_table(CONSTANT, 2), quantum_ms)


@pytest.mark.parametrize("rounding", [exact_ticks, random_ticks])
def test_a_quantum_of_zero_is_refused(rounding: type) -> None:
    with pytest.raises(ConfigError, match="quantum_ms: must be above 0"):
        rounding(step_table(CONSTANT, 2), 0.0)


def test_random_ticks_keep_the_mean() -> None:
    step_ms = step_table(SLOPED, 8)

    ticks = random_ticks(step_ms, 1.7)

    assert (ticks.floor_ticks + ticks.ceil_probability) * 1.7 == pytest.approx(step_ms)
    assert ticks.floor_ticks.min() >= 1


def test_a_random_quantum_above_the_fastest_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="quantum_ms: must be above 0 and at most 6, got 7"):
        random_ticks(step_table(CONSTANT, 2), 7.0)


def test_latencies_with_a_coarse_common_quantum_stay_exact_and_others_are_rounded() -> None:
    odd = np.array([[6.137], [27.911]])

    assert tick_table(step_table(CONSTANT, 2)).floor_ticks[:, 0].tolist() == [20, 93]
    assert tick_table(odd).floor_ticks.tolist() == rounded_ticks(odd).floor_ticks.tolist() == [[3], [13]]


@pytest.mark.parametrize(
    ("latencies", "batch_max", "message"),
    [
        (CONSTANT[:1], (), "latencies: 2 models expected, got 1"),
        (CONSTANT, (4,), "batch_max: 2 models expected, got 1"),
        (CONSTANT, (4, 0), "batch_max: must be at least 1, got"),
    ],
)
def test_a_system_with_parts_missing_is_refused(
    latencies: tuple[StepLatency, ...], batch_max: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        System(A100_PAIR.routing, latencies, batch_max)
