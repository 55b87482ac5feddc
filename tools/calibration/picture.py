"""The curve as a PNG: accuracy over the large model's share, or the share over the cutoff without answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from router_backend.core.errors import ConfigError
from tools.calibration.curve import Point


def draw(path: Path, points: Sequence[Point]) -> None:
    """ConfigError when it cannot be drawn or written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--plot: matplotlib is not installed; pip install 'token-router[plot]'") from error
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if all(point.accuracy is not None for point in points):
        _accuracy(axes, points)
    else:
        _shares(axes, points)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot: {path}: {error}") from error


def _accuracy(axes: Any, points: Sequence[Point]) -> None:
    for policy, group in _by_policy(points).items():
        xs, ys = ([getattr(point, name) for point in group] for name in ("large_share", "accuracy"))
        axes.plot(xs, ys, "o-" if len(group) > 1 else "s", label=policy)
    axes.set(xlabel="share of tokens by the large model", ylabel="answers right in full")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.04))


def _shares(axes: Any, points: Sequence[Point]) -> None:
    for policy, group in _by_policy(points).items():
        cutoffs = [point.cutoff or 0.0 for point in group]
        axes.plot(cutoffs, [point.large_share for point in group], "o-", label=f"{policy}: large share")
        axes.plot(cutoffs, [point.discarded_share for point in group], "x--", label=f"{policy}: discarded")
    axes.set(xlabel="cutoff", ylabel="share of tokens")


def _by_policy(points: Sequence[Point]) -> dict[str, list[Point]]:
    groups: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.large_share):
        groups.setdefault(point.policy, []).append(point)
    return groups
