"""Figures as flat samples of the metrics page: `name` or `name{label="value"}` to number."""

from __future__ import annotations

from collections.abc import Mapping

from router_backend.core.histogram import HistogramCounts

Samples = dict[str, float]


def labelled(name: str, label: str, values: Mapping[str, float]) -> Samples:
    return {f'{name}{{{label}="{key}"}}': float(value) for key, value in values.items()}


def histogram_samples(name: str, histogram: HistogramCounts) -> Samples:
    """Prometheus' form: each bucket counts all observations up to its bound; `name` may have labels."""
    base, _, rest = name.partition("{")
    labels = rest.removesuffix("}")
    tail = f"{{{labels}}}" if labels else ""
    found: Samples = {}
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        edge = "+Inf" if bound == float("inf") else f"{bound:g}"
        found[f'{base}_bucket{{{labels + "," if labels else ""}le="{edge}"}}'] = below
    found[f"{base}_sum{tail}"] = histogram.total
    found[f"{base}_count{tail}"] = below
    return found
