"""Draws timelines: a panel each, one lane per model, one colour per request.

A batch is a bar as long as its step, cut into one slice per request.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router_backend.core.errors import ConfigError
from tools.timeline.record import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LANE = 0.84
"""Height of a bar; lanes are 1 apart."""
LABELS_MAX, LABEL_CHARS_MAX = 6, 3
"""With more requests, or longer names, there are no names in the slices."""
PANEL_INCHES = (9.0, 1.05)
STYLE: dict[Any, Any] = {"svg.hashsalt": "timeline", "svg.fonttype": "none"}
"""The same timeline is the same file."""


def draw(path: Path, timelines: Sequence[Timeline], time_unit: str = "s") -> None:
    """Write the picture; its suffix (.svg, .png, .pdf) says what kind. ConfigError when it cannot be."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib; pip install 'token-router[plot]'") from error
    width, height = PANEL_INCHES
    lanes = sum(len(timeline.models) for timeline in timelines)
    size = (width, 0.5 + height * lanes / 2 + 0.35 * len(timelines))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    for axes, timeline in zip(panels, timelines, strict=True):
        draw_panel(axes, timeline)
    panels[-1].set_xlabel(f"time, {time_unit}")
    try:
        with rc_context(STYLE):
            FigureCanvasAgg(figure).print_figure(path, dpi=110, metadata=_metadata(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _metadata(path: Path) -> dict[str, Any]:
    """An SVG bears no date, so that it changes only when its content does."""
    return {"Date": None} if path.suffix == ".svg" else {}


def draw_panel(axes: Axes, timeline: Timeline) -> None:
    """One timeline on empty axes."""
    names = timeline.request_ids
    colours = _colours(len(names))
    bars: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in names}
    for launch in timeline.launches:
        height = LANE / len(launch.request_ids)
        bottom = launch.model - LANE / 2
        for row, request_id in enumerate(sorted(launch.request_ids)):
            bars[request_id].append((launch.at, launch.step_s, bottom + row * height, height))
    is_labelled = len(names) <= LABELS_MAX and max(map(len, names), default=0) <= LABEL_CHARS_MAX
    for name, colour in zip(names, colours, strict=True):
        _request(axes, bars[name], colour, name if is_labelled else "")
    axes.set_yticks(range(len(timeline.models)), timeline.models)
    axes.set_ylim(len(timeline.models) - 0.5, -0.5)
    axes.set_title(timeline.title, loc="left", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _request(axes: Axes, bars: list[tuple[float, float, float, float]], colour: Any, label: str) -> None:
    starts, widths, bottoms, heights = zip(*bars, strict=True)
    middles = [bottom + height / 2 for bottom, height in zip(bottoms, heights, strict=True)]
    axes.barh(middles, widths, heights, left=starts, color=colour, edgecolor="white", linewidth=0.4)
    for start, width, middle in zip(starts, widths, middles, strict=True) if label else ():
        axes.text(start + width / 2, middle, label, ha="center", va="center", fontsize=7)


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    if count <= 10:
        return [colormaps["tab10"](index) for index in range(count)]
    return [colormaps["turbo"](0.05 + 0.9 * index / count) for index in range(count)]
