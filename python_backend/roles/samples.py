"""What a subserver counts, as samples for /metrics: `name{label="value"}` to number.

Names follow Prometheus: counters end in `_total`, seconds not milliseconds; no request id is ever a label.
"""

from __future__ import annotations

from collections.abc import Mapping

Samples = dict[str, float]

SUBSERVER_TOTALS = {
    "sampled": "tokens_sampled_total",
    "committed": "tokens_committed_total",
    "discarded": "tokens_discarded_total",
    "step_s_sum": "step_seconds_sum",
    "step_count": "step_seconds_count",
}
SUBSERVER_GAUGES = frozenset(
    ("ready", "executing", "parked", "live", "threshold", "peers_up", "predicted_throughput")
)
SUBSERVER_BY_LABEL = {
    "launches": ("launches_total", "reason"),
    "kv_blocks": ("kv_blocks", "owner"),
    "threshold_cause": ("threshold_cause", "cause"),
}


def subserver_samples(figures: Mapping[str, float | Mapping[str, float]]) -> Samples:
    samples: Samples = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            samples |= _labelled(*SUBSERVER_BY_LABEL[name], value)
        elif name in SUBSERVER_GAUGES:
            samples[name] = value
        else:
            samples[SUBSERVER_TOTALS.get(name, f"{name}_total")] = value
    return samples


def _labelled(name: str, label: str, values: Mapping[str, float]) -> Samples:
    return {f'{name}{{{label}="{key}"}}': value for key, value in values.items()}
