"""What a subserver counts, as samples for /metrics: `name{label="value"}` to number.

Names follow Prometheus: counters end in `_total`, seconds not milliseconds; no request id is ever a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from python_backend.config import Deployment
from python_backend.loops.flat_samples import Samples, histogram_samples, labelled
from router_backend.core.histogram import HistogramCounts

Figures = Mapping[str, float | dict[str, float] | dict[str, HistogramCounts]]
"""By name; a name with a label is a sample's already. `spreads` are histograms by metric name."""

SUBSERVER_TOTALS = {
    "sampled": "tokens_sampled_total",
    "committed": "tokens_committed_total",
    "direct_resumes": 'resume_total{kind="direct"}',
    "recomputes": 'resume_total{kind="recompute"}',
    "stale_messages": "stale_returns_total",
}
SUBSERVER_GAUGES = {
    "ready": 'requests{state="queued"}',
    "executing": 'requests{state="running"}',
    "parked": 'requests{state="parked"}',
    "draining": 'requests{state="draining"}',
    **{
        name: name
        for name in (
            *("live", "held", "peers_up", "threshold", "threshold_feasible", "predicted_throughput"),
            "committed_throughput",
        )
    },
}
SUBSERVER_BY_LABEL = {
    "launches": ("launches_total", "reason"),
    "kv_blocks": ("kv_blocks", "owner"),
    "threshold_cause": ("threshold_cause", "cause"),
}


def subserver_samples(figures: Figures) -> Samples:
    samples: Samples = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            samples |= _table(name, value)
        elif name in SUBSERVER_GAUGES:
            samples[SUBSERVER_GAUGES[name]] = value
        elif "{" in name:
            samples[name] = value
        else:
            samples[SUBSERVER_TOTALS.get(name, f"{name}_total")] = value
    return samples | _discarded(samples)


def _table(name: str, values: Mapping[str, float] | Mapping[str, HistogramCounts]) -> Samples:
    if name != "spreads":
        return labelled(*SUBSERVER_BY_LABEL[name], values)  # type: ignore[arg-type]
    samples: Samples = {}
    for metric, spread in values.items():
        assert isinstance(spread, HistogramCounts), (metric, spread)
        samples |= histogram_samples(metric, spread)
    return samples


def _discarded(samples: Samples) -> Samples:
    """The tokens that were sampled and not kept, by reason; the two add up to all of them."""
    if "discarded_total" not in samples:
        return {}
    on_faults = samples.pop("discarded_on_faults_total")
    by_handoff = samples.pop("discarded_total") - on_faults
    return labelled("tokens_discarded_total", "reason", {"handoff": by_handoff, "policy_fault": on_faults})


def familiar_samples(figures: Figures) -> Samples:
    """The three gauges by which dashboards and autoscalers of other LLM servers go."""
    blocks = figures.get("kv_blocks")
    if not isinstance(blocks, Mapping):
        return {}
    counts = {owner: float(str(count)) for owner, count in blocks.items()}
    held = counts["running"] + counts["parked"]
    return {
        "num_requests_running": float(str(figures["executing"])),
        "num_requests_waiting": float(str(figures["ready"])),
        "kv_cache_usage": held / max(1.0, sum(counts.values())),
    }


def identity_samples(deployment: Deployment, engine: str) -> Samples:
    """Gauges that are always 1; their labels say what runs."""
    names = "+".join(deployment.names)
    policy = deployment.policy.name
    return {
        f'build_info{{version="{_version()}",policy="{policy}",engine="{engine}"}}': 1.0,
        f'config_info{{models="{names}",entry="{deployment.names[deployment.entry_index]}",'
        f'mode="{deployment.mode.value}",thresholds="{deployment.thresholds}"}}': 1.0,
    }


def _version() -> str:
    try:
        return version("token-router")
    except PackageNotFoundError:
        return "not installed as a package"
