"""Every metric that a server shows on /metrics: name, kind, labels, meaning.

The mirror takes its descriptions from here, `tools.metric_reference` writes docs/metrics.md from it, and a
test holds it against the page of a running server, both ways. Names lack the prefix `token_router_`. A
histogram is its `_bucket`, `_sum` and `_count`, which Triton 2.51 shows as counters.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(str, Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Shown(str, Enum):
    """By which processes: every sample of a front carries `door`, every sample of a subserver `model`."""

    FRONT = "front"
    MODEL = "model"
    BOTH = "both"


class Metric(NamedTuple):
    name: str
    kind: Kind
    labels: tuple[str, ...]
    """Beside `door` or `model`."""
    meaning: str


_C, _G, _H = Kind.COUNTER, Kind.GAUGE, Kind.HISTOGRAM

REQUESTS = (
    Metric(
        *("requests_total", _C, ("finished",)),
        "Requests by how they ended: stop, length, cancelled, error, rejected. Each is counted once.",
    ),
    Metric("rejections_total", _C, ("reason",), "Requests that never started, by error code."),
    Metric("request_errors_total", _C, ("reason",), "Requests that had started and failed, by error code."),
    Metric(
        *("deadline_exceeded_total", _C, ("where",)),
        "Requests that took longer than they may: while they waited at the front (queue), or later (models).",
    ),
    Metric("live_requests", _G, (), "Requests with the models: the N of the throughput formula."),
    Metric("queued_requests", _G, (), "Requests that wait for a place, or are being turned into tokens."),
    Metric("draining", _G, (), "1 while the front takes no new requests and lets open ones finish."),
    Metric("tokens_delivered_total", _C, ("model",), "Tokens sent to clients, by the model that wrote them."),
    Metric("routed_fraction", _H, (), "Per answer: share of tokens by other models than the entry."),
    Metric("ttft_seconds", _H, (), "From arrival to the first token."),
    Metric(
        *("inter_token_seconds", _H, ("after_handoff",)),
        "Between two tokens of an answer as they reach the front (not as responses are coalesced), by "
        "whether another model wrote the one before.",
    ),
    Metric("e2e_seconds", _H, (), "From arrival to the end."),
    Metric("prompt_tokens", _H, (), "Length of the prompts of requests that started."),
    Metric("output_tokens", _H, (), "Length of their answers."),
    Metric(
        *("cancel_latency_seconds", _H, ()),
        "From a cancellation (or another end that the front decides) until the model that held the request "
        "says that it has let go of it.",
    ),
    Metric("detokenize_seconds", _H, (), "From one token to its text."),
    Metric("recoveries_total", _C, (), "Requests that went on elsewhere after their model was lost."),
    Metric("discarded_reported_total", _C, (), "Discarded tokens, as told to clients in their usage."),
    Metric("handoffs_reported_total", _C, (), "Hand-offs, as told to clients in their usage."),
    Metric("stale_messages_total", _C, (), "Messages about requests that had ended; harmless."),
    Metric("bad_messages_total", _C, (), "Messages that no peer should have sent."),
    Metric("peer_up", _G, ("model",), "1 while this front hears the model (or this replica of it)."),
)

TOKENS = (
    Metric("tokens_sampled_total", _C, (), "Tokens sampled: always committed plus discarded."),
    Metric("tokens_committed_total", _C, (), "Tokens of answers, by the model that wrote them."),
    Metric(
        *("tokens_discarded_total", _C, ("reason",)),
        "Sampled tokens that no answer has: taken back by a hand-off, or lost to a policy fault.",
    ),
    Metric("committed_throughput", _G, (), "Tokens committed per second, over the last two seconds."),
    Metric(
        *("predicted_throughput", _G, ()),
        "What the throughput model promises, tokens per second of all models; on the leader of "
        "`thresholds: auto`, and 0 without a plan.",
    ),
)

HANDOFFS = (
    Metric(
        *("handoffs_total", _C, ("src", "dst", "reason")),
        "Hand-offs sent, by whether the sampled token went along (token_kept) or was taken back "
        "(token_discarded).",
    ),
    Metric("handoffs_sent_total", _C, (), "Hand-offs sent, together."),
    Metric("handoffs_received_total", _C, (), "Hand-offs accepted."),
    Metric("handoff_tokens", _H, (), "Tokens per message that was sent: what the target had not seen."),
    Metric("handoff_tokens_total", _C, (), "Tokens received in hand-offs, with prompts on first contact."),
    Metric("run_tokens", _H, (), "Tokens sampled here between an arrival and the next hand-off."),
    Metric(
        *("handoff_transit_seconds", _H, ("src", "dst")),
        "From the end of the step that decided a hand-off until the target's decode loop hears it. Needs one "
        "monotonic clock: between hosts it stays empty or counts what their clocks happen to allow.",
    ),
    Metric("return_latency_seconds", _H, (), "How long requests were parked here, from hand-off to return."),
    Metric("returns_total", _C, (), "Hand-offs that found their sequence parked here."),
    Metric(
        *("resume_total", _C, ("kind",)),
        "Returns onto a cache that was still there (direct), or had been evicted (recompute).",
    ),
    Metric("stale_returns_total", _C, (), "Hand-offs and other messages that came after the end; harmless."),
    Metric("duplicate_messages_total", _C, (), "Messages seen before."),
    Metric("nacks_total", _C, (), "Hand-offs asked for again because tokens before them were missing."),
    Metric("forced_keeps_total", _C, (), "Discards refused: every other model had discarded there already."),
    Metric("policy_faults_total", _C, (), "Rows ended because their policy raised or answered nonsense."),
    Metric("unreadable_signals_total", _C, (), "Rows whose policy fell back: a signal was NaN or infinite."),
    Metric("router_seconds", _H, (), "One decision of a policy, for all rows of a step that follow it."),
)

SCHEDULING = (
    Metric(
        *("requests", _G, ("state",)),
        "Sequences of this model: queued, running, parked, or draining (ended in the middle of a step).",
    ),
    Metric("live", _G, (), "Requests anywhere in the system, as this model knows."),
    Metric("held", _G, (), "Tokens sampled here, neither committed nor discarded yet: drafts and cascades."),
    Metric(
        *("queue_wait_seconds", _H, ("kind",)),
        "From ready to the start of the step that wrote the next token, deliberate delay included: of new "
        "requests, of first hand-offs, of returns.",
    ),
    Metric("delay_seconds", _H, (), "Per launch: how long the gate held it though something was ready."),
    Metric("launches_total", _C, ("reason",), "Batches by why they started (docs/scheduling.md)."),
    Metric("launch_batch_size", _H, (), "Rows per batch."),
    Metric("batch_tokens", _H, (), "Tokens fed per batch."),
    Metric("steps_total", _C, (), "Batches."),
    Metric("batch_rows_total", _C, (), "Rows of all batches."),
    Metric("batch_tokens_total", _C, (), "Tokens fed in all batches."),
    Metric(
        *("step_seconds", _H, ("phase",)),
        "Time of a step: decode (one token per row), extend (more: prompts, suffixes), mixed.",
    ),
    Metric("threshold", _G, (), "Queue length that starts a batch, as now in force."),
    Metric(
        *("threshold_feasible", _G, ()),
        "1 while the wanted thresholds fit the live requests as they are, sum(threshold - 1) < N; at 0 the "
        "gate lowers them.",
    ),
    Metric("threshold_changes_total", _C, (), "Tables of thresholds that differed from the one before."),
    Metric("threshold_cause", _G, ("cause",), "1 for what the leader's thresholds follow from; auto only."),
    Metric("threshold_solutions_total", _C, (), "Solutions that the leader computed; auto only."),
    Metric("threshold_solving_seconds_total", _C, (), "Time that they took; auto only."),
)

MEMORY = (
    Metric("kv_blocks", _G, ("owner",), "KV blocks: running, parked, cached, free. They sum to the total."),
    Metric("preemptions_total", _C, (), "Running requests that lost their cache to others."),
    Metric("parked_evictions_total", _C, (), "Parked requests that lost their cache to others."),
    Metric("recomputed_tokens_total", _C, (), "Tokens whose cache was lost and has to be computed again."),
    Metric("kv_stalls_total", _C, (), "Times when nobody ready found room until the parked made some."),
    Metric("prefix_lookups_total", _C, (), "Lookups in the prefix cache."),
    Metric("prefix_lookups_on_return_total", _C, (), "Of these, for a request that came back."),
    Metric("prefix_hit_tokens_total", _C, (), "Tokens found there."),
    Metric("num_requests_running", _G, (), "As other LLM servers name it: requests in the current step."),
    Metric("num_requests_waiting", _G, (), "As other LLM servers name it: requests ready to run."),
    Metric("kv_cache_usage", _G, (), "As other LLM servers name it: share of KV blocks held, 0 to 1."),
)

HEALTH = (
    Metric("healthy", _G, (), "1 until one of the model's loops has ended by an error."),
    Metric("peers_up", _G, (), "Other models that this one hears."),
    Metric(
        *("seconds_since_progress", _G, ()),
        "How long something has been there to run and no step has ended; 0 while there is nothing to run.",
    ),
    Metric(
        *("loop_lag_seconds", _H, ("loop",)),
        "How late a loop came back to what it does at fixed times: front, decode, handoff; of client, how "
        "long an ask waited to be read.",
    ),
    Metric("turns_total", _C, (), "Turns of the decode loop."),
    Metric("loop_errors_total", _C, (), "Messages that the decode loop could not follow."),
    Metric("runner_errors_total", _C, (), "Batches that the engine failed."),
    Metric("messages_posted_total", _C, (), "Messages to peers and fronts."),
    Metric("messages_received_total", _C, (), "Messages from them."),
    Metric("messages_malformed_total", _C, (), "Messages that could not be read."),
    Metric("messages_undeliverable_total", _C, (), "Messages whose receiver was gone or overrun."),
)

EVERYWHERE = (
    Metric("open_streams", _G, (), "Responses under way that have not had their final one."),
    Metric("unsent_responses", _G, (), "Responses that wait for slow readers."),
    Metric("unsent_bytes", _G, (), "Bytes of text in them."),
    Metric(
        *("peers_refused_total", _C, ()),
        "Connections from other hosts that were turned away: strangers, or keys that do not fit.",
    ),
    Metric("build_info", _G, ("version", "policy", "engine"), "Always 1: what runs."),
    Metric("config_info", _G, ("models", "entry", "mode", "thresholds"), "Always 1: how it is set up."),
)

SECTIONS: tuple[tuple[str, Shown, tuple[Metric, ...]], ...] = (
    ("Requests, as clients see them", Shown.FRONT, REQUESTS),
    ("Tokens", Shown.MODEL, TOKENS),
    ("Hand-offs", Shown.MODEL, HANDOFFS),
    ("Scheduling", Shown.MODEL, SCHEDULING),
    ("Memory", Shown.MODEL, MEMORY),
    ("Health", Shown.MODEL, HEALTH),
    ("Every process", Shown.BOTH, EVERYWHERE),
)

CATALOGUE: dict[str, Metric] = {metric.name: metric for _, _, section in SECTIONS for metric in section}


def metric_of(family: str) -> Metric | None:
    """The metric that a family on the page belongs to: a histogram has three families."""
    found = CATALOGUE.get(family)
    if found is not None:
        return found
    for ending in ("_bucket", "_sum", "_count"):
        base = CATALOGUE.get(family.removesuffix(ending)) if family.endswith(ending) else None
        if base is not None and base.kind is Kind.HISTOGRAM:
            return base
    return None
