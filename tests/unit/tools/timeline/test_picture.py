"""The picture: bars where the batches were, in a colour per request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from router_backend.core.errors import ConfigError
from tests.unit.tools.timeline.samples import TIMELINE, launch
from tools.timeline import picture

matplotlib_figure = pytest.importorskip("matplotlib.figure")


def bars(axes: Any) -> list[tuple[float, float, float, str]]:
    """(start, length, height, colour) of every bar."""
    return sorted(
        (bar.get_x(), bar.get_width(), bar.get_height(), str(bar.get_facecolor())) for bar in axes.patches
    )


def panel() -> Any:
    axes = matplotlib_figure.Figure().add_subplot()
    picture.draw_panel(axes, TIMELINE)
    return axes


def test_a_batch_is_as_long_as_its_step_and_a_slice_per_request():
    half, whole = picture.LANE / 2, picture.LANE
    found = [(start, length, pytest.approx(height)) for start, length, height, _ in bars(panel())]

    assert found == [(10.0, 1.0, half), (10.0, 1.0, half), (11.0, 1.0, whole), (12.0, 3.5, whole)]


def test_a_request_keeps_its_colour_on_both_models():
    colours = [colour for *_, colour in bars(panel())]
    a, b = colours[2], colours[3]

    assert a != b
    assert {colours[0], colours[1]} == {a, b}


def test_few_requests_are_named_in_their_slices_and_many_are_not():
    assert [text.get_text() for text in panel().texts] == ["a", "a", "b", "b"]

    crowd = replace(TIMELINE, launches=(launch(0.0, 0, 1.0, *"abcdefghijkl"),))
    axes = matplotlib_figure.Figure().add_subplot()
    picture.draw_panel(axes, crowd)
    assert (len(axes.patches), len(axes.texts)) == (12, 0)
    assert len({colour for *_, colour in bars(axes)}) == 12


def test_long_names_stay_out_of_the_slices():
    axes = matplotlib_figure.Figure().add_subplot()
    picture.draw_panel(axes, replace(TIMELINE, launches=(launch(0.0, 0, 1.0, "d878518e94f84d4b"),)))

    assert len(axes.texts) == 0


def test_an_svg_of_the_same_timeline_is_the_same_file(tmp_path):
    for name in ("a.svg", "b.svg"):
        picture.draw(tmp_path / name, [TIMELINE, TIMELINE])

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_kind_of_picture_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not supported"):
        picture.draw(tmp_path / "a.nothing", [TIMELINE])
