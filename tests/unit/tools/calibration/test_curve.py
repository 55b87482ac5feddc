"""The cutoff for a wished share is found between the measured ones, whichever way the curve falls."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from router_backend.core.errors import ConfigError
from tools.calibration.curve import CLOSE, TRIES, Point, found, table


def points(share: Callable[[float], float], *cutoffs: float) -> list[Point]:
    return [point(share, cutoff) for cutoff in cutoffs]


def point(share: Callable[[float], float], cutoff: float) -> Point:
    return Point("mine", cutoff, share(cutoff), 0.1, 0.2, None)


def falling(cutoff: float) -> float:
    return (1.0 - cutoff) ** 2


def rising(cutoff: float) -> float:
    return cutoff**3


@pytest.mark.parametrize("share", [falling, rising])
@pytest.mark.parametrize("target", [0.03, 0.3, 0.8])
def test_halving_comes_close_to_the_wished_share(share: Callable[[float], float], target: float) -> None:
    tried: list[float] = []

    def measure(cutoff: float) -> Point:
        tried.append(cutoff)
        return point(share, cutoff)

    best = found(points(share, 0.9, 0.1, 0.5, 1.0, 0.0), target, measure)

    assert abs(best.large_share - target) <= CLOSE
    assert len(tried) <= TRIES


def test_a_measured_point_that_is_close_enough_needs_no_more() -> None:
    grid = points(falling, 0.1, 0.5)
    assert found(grid, falling(0.5) + CLOSE / 2, lambda cutoff: pytest.fail("measured again")) == grid[1]


def test_a_step_in_the_curve_gives_the_nearest_side() -> None:
    def step(cutoff: float) -> float:
        return 0.2 if cutoff > 0.37 else 0.9

    assert found(points(step, 0.0, 1.0), 0.3, lambda cutoff: point(step, cutoff)).large_share == 0.2


def test_a_share_outside_what_was_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a share of 0\.9 is not between 0\.250 and 0\.810: give wider"):
        found(points(falling, 0.1, 0.5), 0.9, lambda cutoff: point(falling, cutoff))


def test_the_table_shows_what_there_is() -> None:
    alone = Point("small_only", None, 0.0, 0.0, 0.0, 0.35)
    routed = Point("r_stitch", 0.03, 0.404, 0.288, 0.808, None)
    assert table([alone, routed]).splitlines()[2:] == [
        "| small_only | - | 0.0% | 0.0% | 0.000 | 35.0% |",
        "| r_stitch | 0.03 | 40.4% | 28.8% | 0.808 | - |",
    ]
