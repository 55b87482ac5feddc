"""A front's snapshot as flat samples for the metrics page: `name{label="value"}` to number."""

from __future__ import annotations

from python_backend.loops.flat_samples import Samples, histogram_samples, labelled
from python_backend.loops.front_counts import FrontSnapshot


def samples(
    snapshot: FrontSnapshot, names: tuple[str, ...], subservers: tuple[str, ...] = ()
) -> Samples:
    """`names` are the models in deployment order, `subservers` all of their replicas, by default one each.
    Names that end in `_total` only grow."""
    gauges = snapshot.gauges
    found = {
        "live_requests": float(gauges.live),
        "queued_requests": float(gauges.queued),
        "draining": float(gauges.is_draining),
        "discarded_reported_total": float(snapshot.discarded),
        "handoffs_reported_total": float(snapshot.handoffs),
        "stale_messages_total": float(snapshot.stale_messages),
        "bad_messages_total": float(snapshot.bad_messages),
        "recoveries_total": float(snapshot.recoveries),
        **labelled("requests_total", "finished", snapshot.requests),
        **labelled("rejections_total", "reason", snapshot.rejections),
        **labelled("request_errors_total", "reason", snapshot.errors),
        **labelled("deadline_exceeded_total", "where", snapshot.deadlines),
        **labelled("tokens_delivered_total", "model", dict(zip(names, snapshot.tokens, strict=True))),
        **labelled("peer_up", "model", dict(zip(subservers or names, gauges.peers_up, strict=True))),
    }
    for name, histogram in snapshot.spreads.items():
        found |= histogram_samples(name, histogram)
    return found
