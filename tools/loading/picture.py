"""A sweep as a picture: throughput, latencies and the share of the large model over the number of clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.loading.cells import Cell

PANELS = (
    ("tokens per second", (("tokens_per_s", "committed"),)),
    ("first response, ms", (("first_p50_ms", "p50"), ("first_p95_ms", "p95"))),
    ("whole answer, ms", (("whole_p50_ms", "p50"), ("whole_p95_ms", "p95"))),
    ("share of the large model", (("large_share", "share"),)),
)


def draw(title: str, cells: Sequence[Cell], target: Path) -> None:
    """Writes a PNG (or what the name's ending says)."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    figure.suptitle(title)
    clients = [cell.clients for cell in cells]
    for axes, (name, lines) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        for field, label in lines:
            axes.plot(clients, [getattr(cell, field) for cell in cells], marker="o", label=label)
        axes.set(xlabel="clients at once", ylabel=name, ylim=(0, None), xticks=clients)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(target, dpi=110)
