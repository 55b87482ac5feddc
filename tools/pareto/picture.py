"""Accuracy against throughput with intervals, and the line between the two models alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.pareto.frontier import LARGE, SMALL, Point


def draw(path: Path, points: Sequence[Point]) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    ends = [point for point in points if point.policy in (SMALL, LARGE)]
    speeds, accuracies = zip(*sorted((one.tokens_per_s.mean, one.accuracy.mean) for one in ends), strict=True)
    axes.plot(speeds, accuracies, "k--", linewidth=1, label="mixing small_only and large_only")
    for policy in dict.fromkeys(point.policy for point in points):
        group = sorted((one for one in points if one.policy == policy), key=lambda one: one.tokens_per_s.mean)
        axes.errorbar(
            [one.tokens_per_s.mean for one in group],
            [one.accuracy.mean for one in group],
            xerr=[one.tokens_per_s.half for one in group],
            yerr=[one.accuracy.half for one in group],
            fmt="o-" if len(group) > 1 else "s",
            capsize=2,
            label=policy,
        )
    axes.set(xlabel="committed tokens/s", ylabel="answers right in full", ylim=(-0.02, 1.06))
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
