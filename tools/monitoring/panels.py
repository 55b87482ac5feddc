"""The panels of the Grafana dashboard: rows, titles, units and queries, and nothing of Grafana's JSON."""

from __future__ import annotations

from typing import NamedTuple

HERE = 'instance=~"$instance"'
"""Every query sees the chosen servers only."""


class Panel(NamedTuple):
    title: str
    unit: str
    """A unit of Grafana's: s, short, percentunit, bytes, reqps."""
    queries: tuple[tuple[str, str], ...]
    """(legend, expression without the prefix `token_router_`, written `@`)."""
    kind: str = "timeseries"
    help: str = ""


def rate(name: str, by: str = "", labels: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    chosen = f"{HERE},{labels}" if labels else HERE
    return f"sum{grouped} (rate(@{name}{{{chosen}}}[$__rate_interval]))"


def quantiles(name: str, by: str = "") -> tuple[tuple[str, str], ...]:
    """The median, and what one in twenty and one in a hundred exceed."""
    groups = f"le, {by}" if by else "le"
    tail = f" {{{{{by}}}}}" if by else ""
    return tuple(
        (f"p{share}{tail}", f"histogram_quantile(0.{share}, {rate(f'{name}_bucket', groups)})")
        for share in (50, 95, 99)
    )


def gauge(name: str, by: str = "", labels: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    chosen = f"{HERE},{labels}" if labels else HERE
    return f"sum{grouped} (@{name}{{{chosen}}})"


COMMITTED = rate("tokens_committed_total")
ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "At a glance",
        (
            Panel("Live requests", "short", (("live", gauge("live_requests")),), "stat"),
            Panel("Tokens per second", "short", (("committed", COMMITTED),), "stat"),
            Panel(
                *("Share by model", "percentunit"),
                (
                    (
                        "{{model}}",
                        f"{rate('tokens_committed_total', 'model')} / scalar({COMMITTED})",
                    ),
                ),
                "stat",
            ),
            Panel(
                *("Wasted tokens", "percentunit"),
                (("discarded", f"{rate('tokens_discarded_total')} / {rate('tokens_sampled_total')}"),),
                "stat",
            ),
            Panel("First token, p95", "s", quantiles("ttft_seconds")[1:2], "stat"),
            Panel("Models heard", "short", (("{{model}}", f"min by (model) (@peer_up{{{HERE}}})"),), "stat"),
        ),
    ),
    (
        "Requests, as clients see them",
        (
            Panel("Ended, by how", "reqps", (("{{finished}}", rate("requests_total", "finished")),)),
            Panel(
                *("Refused and failed, by code", "reqps"),
                (
                    ("refused {{reason}}", rate("rejections_total", "reason")),
                    ("failed {{reason}}", rate("request_errors_total", "reason")),
                    ("late, {{where}}", rate("deadline_exceeded_total", "where")),
                ),
            ),
            Panel(
                *("In the system", "short"),
                (
                    ("live", gauge("live_requests")),
                    ("queued", gauge("queued_requests")),
                    ("streams", gauge("open_streams")),
                ),
            ),
            Panel("Time to first token", "s", quantiles("ttft_seconds")),
            Panel("Between tokens", "s", quantiles("inter_token_seconds", "after_handoff")),
            Panel("End to end", "s", quantiles("e2e_seconds")),
            Panel("Output tokens", "short", quantiles("output_tokens")),
            Panel("Prompt tokens", "short", quantiles("prompt_tokens")),
            Panel("Cancelled: until the model lets go", "s", quantiles("cancel_latency_seconds")),
        ),
    ),
    (
        "Routing",
        (
            Panel(
                "Tokens per second, by model",
                "short",
                (("{{model}}", rate("tokens_committed_total", "model")),),
            ),
            Panel("Large share per answer", "percentunit", quantiles("routed_fraction")),
            Panel(
                *("Hand-offs per second", "short"),
                (("{{src}} to {{dst}}, {{reason}}", rate("handoffs_total", "src, dst, reason")),),
            ),
            Panel(
                "Tokens per stay",
                "short",
                quantiles("run_tokens", "model"),
                help="Geometric if routing has no memory.",
            ),
            Panel("Hand-off transit", "s", quantiles("handoff_transit_seconds", "dst")),
            Panel("Parked: until the return", "s", quantiles("return_latency_seconds", "model")),
            Panel("Tokens per hand-off", "short", quantiles("handoff_tokens", "model")),
            Panel(
                "Returns onto a cache that was still there",
                "short",
                (("{{kind}}", rate("resume_total", "kind")),),
            ),
            Panel("One decision of a policy", "s", quantiles("router_seconds", "model")),
        ),
    ),
    (
        "Scheduling",
        (
            Panel(
                "Sequences, by state", "short", (("{{model}} {{state}}", gauge("requests", "model, state")),)
            ),
            Panel("Rows per batch", "short", quantiles("launch_batch_size", "model")),
            Panel(
                "Batches, by reason",
                "short",
                (("{{model}} {{reason}}", rate("launches_total", "model, reason")),),
            ),
            Panel(
                *("Thresholds", "short"),
                (
                    ("{{model}}", gauge("threshold", "model")),
                    ("{{model}} changes/s", rate("threshold_changes_total", "model")),
                    ("{{model}} fits", gauge("threshold_feasible", "model")),
                ),
            ),
            Panel("Wait for a batch", "s", quantiles("queue_wait_seconds", "kind")),
            Panel("Deliberate delay", "s", quantiles("delay_seconds", "model")),
            Panel("Step time", "s", quantiles("step_seconds", "phase")),
            Panel("Tokens fed per batch", "short", quantiles("batch_tokens", "model")),
            Panel(
                *("Throughput, promised and seen", "short"),
                (("promised", gauge("predicted_throughput")), ("seen", gauge("committed_throughput"))),
                help="The promise exists with thresholds auto only.",
            ),
        ),
    ),
    (
        "Memory and health",
        (
            Panel("KV blocks", "short", (("{{model}} {{owner}}", gauge("kv_blocks", "model, owner")),)),
            Panel(
                *("Memory pressure", "short"),
                (
                    ("{{model}} parked evicted", rate("parked_evictions_total", "model")),
                    ("{{model}} preempted", rate("preemptions_total", "model")),
                    ("{{model}} tokens again", rate("recomputed_tokens_total", "model")),
                ),
            ),
            Panel(
                *("Slow readers", "bytes"),
                (("bytes", gauge("unsent_bytes")), ("responses", gauge("unsent_responses"))),
            ),
            Panel(
                "Without progress",
                "s",
                (("{{model}}", f"max by (model) (@seconds_since_progress{{{HERE}}})"),),
            ),
            Panel("Loop lag", "s", quantiles("loop_lag_seconds", "loop")),
            Panel(
                *("Late and odd messages", "short"),
                (
                    ("{{model}} after the end", rate("stale_returns_total", "model")),
                    ("{{model}} malformed", rate("messages_malformed_total", "model")),
                    ("{{model}} undeliverable", rate("messages_undeliverable_total", "model")),
                ),
            ),
        ),
    ),
)
