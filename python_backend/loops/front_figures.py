"""A front's snapshot as flat samples for the metrics page: `name{label="value"}` to number."""

from __future__ import annotations

from python_backend.loops.front_counts import FrontSnapshot
from python_backend.loops.histogram import HistogramCounts

Samples = dict[str, float]


def samples(snapshot: FrontSnapshot, names: tuple[str, ...]) -> Samples:
    """`names` are the models in deployment order. Names that end in `_total` only grow."""
    gauges = snapshot.gauges
    return {
        "live_requests": gauges.live,
        "queued_requests": gauges.queued,
        "draining": float(gauges.is_draining),
        "discarded_reported_total": snapshot.discarded,
        "handoffs_reported_total": snapshot.handoffs,
        "stale_messages_total": snapshot.stale_messages,
        "bad_messages_total": snapshot.bad_messages,
        **_labelled("requests_total", "finished", snapshot.requests),
        **_labelled("rejections_total", "reason", snapshot.rejections),
        **_labelled("request_errors_total", "reason", snapshot.errors),
        **_labelled("tokens_delivered_total", "model", dict(zip(names, snapshot.tokens, strict=True))),
        **_labelled("peer_up", "model", dict(zip(names, gauges.peers_up, strict=True))),
        **_histogram("ttft_seconds", snapshot.ttft_s),
        **_histogram("inter_token_seconds", snapshot.inter_token_s),
        **_histogram("e2e_seconds", snapshot.e2e_s),
        **_histogram("routed_fraction", snapshot.routed_fraction),
    }


def _labelled(name: str, label: str, values: dict[str, int] | dict[str, bool]) -> Samples:
    return {f'{name}{{{label}="{key}"}}': float(value) for key, value in values.items()}


def _histogram(name: str, histogram: HistogramCounts) -> Samples:
    """Prometheus' form: each bucket counts all observations up to its bound."""
    found: Samples = {}
    below = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        below += count
        found[f'{name}_bucket{{le="{"+Inf" if bound == float("inf") else f"{bound:g}"}"}}'] = below
    found[f"{name}_sum"] = histogram.total
    found[f"{name}_count"] = below
    return found
