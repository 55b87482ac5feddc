"""The two pictures of arXiv:2610.12242 (section 5), with this run beside the published points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from router_backend.core.errors import ConfigError

PAPER_BREAKDOWN: Mapping[str, Mapping[int, float]] = {
    "delayed": {1: 73.02, 4: 210.61, 8: 372.48},
    "eager_async": {1: 73.02, 4: 161.26, 8: 296.86},
    "step_sync": {4: 143.88, 8: 230.79},
}
"""tok/s by mode and concurrency: R2R, Qwen3-0.6B + 32B; the paper's "full", "without delayed batching" and
"and without async"."""
PAPER_SCALING = {1: 73.02, 4: 210.61, 8: 372.48, 16: 73.02 * 8.61}
"""tok/s by concurrency; 16 from "total throughput x8.61"."""
ORDER = ("step_sync", "model_sync", "eager_async", "delayed")


class Point(Protocol):
    """What is drawn of a row."""

    @property
    def mode(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def throughput(self) -> float: ...


def draw(path: Path, rows: Sequence[Point]) -> None:
    """Both pictures in one PNG; ConfigError when it cannot be drawn or written."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("--plot: matplotlib is not installed; pip install 'token-router[plot]'") from error
    figure = Figure(figsize=(12, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_breakdown(left, rows)
    draw_scaling(right, rows)
    figure.suptitle("Emulated models, real runtime; dashed or hollow: arXiv:2610.12242, measured on A100")
    try:
        FigureCanvasAgg(figure).print_figure(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--plot: {path}: {error}") from error


def breakdown(rows: Sequence[Point]) -> dict[str, dict[int, float]]:
    """tok/s by mode and concurrency."""
    modes = [mode for mode in ORDER if any(row.mode == mode for row in rows)]
    return {mode: {row.n: row.throughput for row in rows if row.mode == mode} for mode in modes}


def scaling(throughputs: Mapping[int, float]) -> list[tuple[float, float]]:
    """(tok/s of one user, tok/s of all), by rising concurrency."""
    return [(total / n, total) for n, total in sorted(throughputs.items())]


def draw_breakdown(axes: Any, rows: Sequence[Point]) -> None:
    """What each mechanism adds, at every concurrency."""
    found = breakdown(rows)
    counts = sorted({row.n for row in rows})
    width = 0.8 / max(1, len(found))
    for k, (mode, values) in enumerate(found.items()):
        places = {n: place + (k - (len(found) - 1) / 2) * width for place, n in enumerate(counts)}
        axes.bar([places[n] for n in values], list(values.values()), width, label=mode)
        published = {n: value for n, value in PAPER_BREAKDOWN.get(mode, {}).items() if n in places}
        axes.plot([places[n] for n in published], list(published.values()), "k_", markersize=14)
    axes.set_xticks(range(len(counts)), [str(n) for n in counts])
    axes.set_xlabel("concurrent requests")
    axes.set_ylabel("committed tok/s (black line: paper)")
    axes.legend()


def draw_scaling(axes: Any, rows: Sequence[Point]) -> None:
    """Total throughput against the speed of one user, one line per mode."""
    for mode, values in breakdown(rows).items():
        axes.plot(*zip(*scaling(values), strict=True), marker="o", label=mode)
    axes.plot(*zip(*scaling(PAPER_SCALING), strict=True), "k--", marker="o", mfc="none", label="paper, full")
    axes.set_xlabel("tok/s of one user")
    axes.set_ylabel("committed tok/s of all")
    axes.grid(alpha=0.3)
    axes.legend()
