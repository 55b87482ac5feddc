"""A picture is drawn with and without known answers; where it cannot be written is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from router_backend.core.errors import ConfigError
from tools.calibration.curve import Point
from tools.calibration.picture import draw

PNG = b"\x89PNG"


@pytest.mark.parametrize("accuracy", [None, 0.5])
def test_a_png_is_written(tmp_path: Path, accuracy: float | None) -> None:
    curve = [Point("mine", cutoff / 4, 1 - cutoff / 4, 0.1, 0.2, accuracy) for cutoff in range(4)]
    draw(tmp_path / "curve.png", [*curve, Point("small_only", None, 0.0, 0.0, 0.0, accuracy)])
    assert (tmp_path / "curve.png").read_bytes().startswith(PNG)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--plot: .*nowhere"):
        draw(tmp_path / "nowhere" / "curve.png", [Point("mine", 0.5, 0.5, 0.1, 0.2, None)])
