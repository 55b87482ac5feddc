"""What the pictures are drawn from, and that they can be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from router_backend.core.errors import ConfigError
from tools.emulation.pictures import PAPER_SCALING, breakdown, draw, scaling

pytest.importorskip("matplotlib")


@dataclass(frozen=True)
class Row:
    mode: str
    n: int
    throughput: float


ROWS = [Row("delayed", 1, 60.0), Row("delayed", 4, 200.0), Row("step_sync", 4, 140.0)]


def test_the_breakdown_goes_from_the_oldest_mode_to_the_newest() -> None:
    found = breakdown(ROWS)

    assert list(found.items()) == [("step_sync", {4: 140.0}), ("delayed", {1: 60.0, 4: 200.0})]


def test_one_users_speed_is_the_nth_part() -> None:
    assert scaling({4: 200.0, 1: 60.0}) == [(60.0, 60.0), (50.0, 200.0)]
    # "51.7 % of the single-user speed kept" at 16 (the paper rounds).
    assert scaling(PAPER_SCALING)[-1][0] / PAPER_SCALING[1] == pytest.approx(0.517, abs=0.025)


def test_both_pictures_are_drawn(tmp_path: Path) -> None:
    draw(tmp_path / "modes.png", ROWS)

    assert (tmp_path / "modes.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--plot: .*gone"):
        draw(tmp_path / "gone" / "modes.png", ROWS)
