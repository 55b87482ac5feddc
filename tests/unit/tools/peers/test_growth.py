"""Exponents of power laws are found where an axis was varied, and nowhere else."""

from __future__ import annotations

import pytest

from tools.peers.figures import Row
from tools.peers.growth import exponents


def seen(system: str, n: int, context: int, seconds_per_token: float) -> Row:
    speed = n / seconds_per_token
    return Row(system, n, 128, context, speed, speed, speed, 1.0, None, None, None, None, 0.0, {}, 0.0, 0.0)


def test_the_slope_of_a_power_law_is_its_exponent() -> None:
    rows = [seen("square", 1, context, 1e-6 * context**2) for context in (256, 1024, 8192)]
    rows += [seen("flat", n, 256, 0.01) for n in (1, 4, 32)]

    assert exponents(rows) == [
        {"system": "square", "axis": "context", "exponent": pytest.approx(2.0)},
        {"system": "flat", "axis": "concurrency", "exponent": pytest.approx(0.0, abs=1e-9)},
    ]


def test_lines_that_differ_elsewhere_are_fitted_apart() -> None:
    rows = [seen("both", n, context, n * context) for n in (1, 2) for context in (10, 100)]

    assert {found["axis"]: found["exponent"] for found in exponents(rows)} == {
        "context": pytest.approx(1.0),
        "concurrency": pytest.approx(1.0),
    }
