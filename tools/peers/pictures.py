"""The picture of `tools.bench_peers`: committed tokens per second of every system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.peers.figures import Row

AXES = (
    ("concurrency", "requests at once"),
    ("output_tokens", "tokens of an answer"),
    ("context", "tokens of a prompt"),
)

COLORS = (
    *("#1f77b4", "#17becf", "#2ca02c", "#98df8a", "#9467bd", "#8c564b", "#e377c2"),
    *("#d62728", "#ff7f0e", "#bcbd22", "#7f7f7f", "#000000"),
)
"""One for each system: matplotlib's own begin again after ten."""


def draw(path: Path, rows: Sequence[Row]) -> None:
    """One panel per axis that was varied, the others where most was measured; log-log."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    varied = [axis for axis in AXES if len({getattr(one, axis[0]) for one in rows}) > 1] or [AXES[0]]
    figure, panels = pyplot.subplots(1, len(varied), figsize=(6 * len(varied), 4.5), squeeze=False)
    for panel, axis in zip(panels[0], varied, strict=True):
        _panel(panel, rows, axis)
    panels[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def most_varied(rows: Sequence[Row], axis: str) -> dict[str, int]:
    """Values of the other axes at which `axis` has most values, the least of these."""
    others = [name for name, _ in AXES if name != axis]
    seen: dict[tuple[int, ...], set[int]] = {}
    for one in rows:
        seen.setdefault(tuple(getattr(one, name) for name in others), set()).add(getattr(one, axis))
    best = min(seen, key=lambda values: (-len(seen[values]), values))
    return dict(zip(others, best, strict=True))


def _panel(panel: Any, rows: Sequence[Row], axis: tuple[str, str]) -> None:
    name, label = axis
    panel.set_prop_cycle(color=COLORS)
    fixed = most_varied(rows, name)
    shown = [one for one in rows if all(getattr(one, key) == value for key, value in fixed.items())]
    for system in dict.fromkeys(one.system for one in shown):
        points = sorted((getattr(one, name), one.throughput) for one in shown if one.system == system)
        panel.plot(*zip(*points, strict=True), marker="o", label=system)
    panel.set(xscale="log", yscale="log", xlabel=label, ylabel="committed tokens/s")
    panel.set_title(", ".join(f"{key} {value}" for key, value in fixed.items()), fontsize=9)
    panel.grid(alpha=0.3, which="both")
