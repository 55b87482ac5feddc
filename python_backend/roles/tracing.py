"""OpenTelemetry spans, one per request and one per stay and hand-off in it.

Off unless the standard variable OTEL_TRACES_EXPORTER names an exporter; then the front remembers who wrote
when, and a thread of its own makes spans of it after the request has ended. Nothing of OpenTelemetry is
imported before that, no span is made while a request runs, and no prompt or answer is in one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from queue import Empty, Full, Queue
from typing import Any, NamedTuple

from python_backend.loops.base import Finish
from python_backend.loops.story import Story
from router_backend.core.effects import Reason
from router_backend.core.errors import ConfigError

EXPORTER, DISABLED, PROTOCOL = "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_EXPORTER_OTLP_PROTOCOL"
OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http", "http/json": "otlp_json_http"}
WAITING_MAX = 10_000
"""Requests that may wait to become spans; later ones have none."""
LOOK_S = 0.25
NS = 1_000_000_000


class Ended(NamedTuple):
    story: Story
    finish: Finish
    at: float


class Part(NamedTuple):
    """A child span; seconds on the front's clock."""

    name: str
    begins: float
    ends: float
    attributes: Mapping[str, str | int | float]


def parts(story: Story, names: tuple[str, ...]) -> Iterator[Part]:
    """The course of a request: queue, the way to the first token, then stays and hand-offs in turn."""
    if story.started_at is None:
        return
    yield Part("queue", story.arrived_at, story.started_at, {})
    before = None
    for stay in story.stays:
        name = names[stay.model]
        if before is None:
            yield Part("first token", story.started_at, stay.first_at, {"router.model": name})
        else:
            ends = {"router.source": names[before.model], "router.target": name}
            yield Part("hand-off", before.last_at, stay.first_at, ends)
        what: dict[str, str | int | float] = {"router.model": name, "router.tokens": stay.tokens}
        yield Part(f"run {name}", stay.first_at, stay.last_at, what)
        before = stay


def attributes(ended: Ended, entry: int) -> dict[str, str | int | float]:
    """Of the whole request, by the names that vLLM uses, and our own."""
    story, finish = ended.story, ended.finish
    found: dict[str, str | int | float] = {
        "gen_ai.usage.prompt_tokens": finish.prompt_tokens,
        "gen_ai.usage.completion_tokens": finish.output_tokens,
        "gen_ai.latency.e2e": ended.at - story.arrived_at,
        "router.finish": finish.reason.value,
        "router.handoffs": finish.handoffs,
        "router.discarded_tokens": finish.discarded_tokens,
        "router.routed_tokens": sum(stay.tokens for stay in story.stays if stay.model != entry),
    }
    if story.client_id:
        found["gen_ai.request.id"] = story.client_id
    if story.policy:
        found["router.policy"] = story.policy
    if story.started_at is not None:
        found["gen_ai.latency.time_in_queue"] = story.started_at - story.arrived_at
    if story.stays:
        found["gen_ai.latency.time_to_first_token"] = story.stays[0].first_at - story.arrived_at
    if finish.code:
        found["error.type"] = finish.code
    return found


class Tracing:
    """`note` from the front's thread, never waiting; the spans are made in a thread of this."""

    def __init__(self, provider: Any, names: tuple[str, ...], entry: int, door: str) -> None:
        """`provider` is an opentelemetry.sdk.trace.TracerProvider; it is shut down by `stop`."""
        self.lost = 0
        self._provider = provider
        self._tracer = provider.get_tracer("token_router")
        self._names = names
        self._entry = entry
        self._door = door
        self._clock = time.monotonic
        self._epoch_ns = time.time_ns() - round(NS * self._clock())
        self._ended: Queue[Ended] = Queue(WAITING_MAX)
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Make spans of everything that was noted, export them."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._provider.shutdown()

    def note(self, story: Story, finish: Finish) -> None:
        try:
            self._ended.put_nowait(Ended(story, finish, self._clock()))
        except Full:
            self.lost += 1

    def _run(self) -> None:
        while True:
            try:
                self._make(self._ended.get(timeout=LOOK_S))
            except Empty:
                if self._is_stopping.is_set():
                    return

    def _make(self, ended: Ended) -> None:
        from opentelemetry import trace

        what = {"router.door": self._door, **attributes(ended, self._entry)}
        begins = self._ns(ended.story.arrived_at)
        kind = trace.SpanKind.SERVER
        root = self._tracer.start_span("request", None, kind, what, start_time=begins)
        inside = trace.set_span_in_context(root)
        for part in parts(ended.story, self._names):
            at = self._ns(part.begins)
            child = self._tracer.start_span(part.name, inside, attributes=part.attributes, start_time=at)
            child.end(self._ns(part.ends))
        if ended.finish.reason is Reason.ERROR:
            root.set_status(trace.Status(trace.StatusCode.ERROR, ended.finish.code))
        root.end(self._ns(ended.at))

    def _ns(self, at: float) -> int:
        return self._epoch_ns + round(NS * at)


def open_tracing(
    environment: Mapping[str, str], names: tuple[str, ...], entry: int, door: str
) -> Tracing | None:
    """What the OTEL_ variables ask for; None is the default. ConfigError when a package is missing."""
    chosen = [name.strip() for name in environment.get(EXPORTER, "none").split(",")]
    if not set(chosen) - {"none", ""} or environment.get(DISABLED, "").lower() == "true":
        return None
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(f"{EXPORTER}: {error}: pip install 'token-router[otel]', or unset it") from error
    provider = TracerProvider()
    for name in chosen:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name, environment)))
    return Tracing(provider, names, entry, door)


def _exporter(name: str, environment: Mapping[str, str]) -> Any:
    if name == "otlp":
        name = OTLP.get(environment.get(PROTOCOL, "http/json"), name)
    found = list(entry_points(group="opentelemetry_traces_exporter", name=name))
    if not found:
        raise ConfigError(f"{EXPORTER}: no installed package brings an exporter {name!r} (docs/metrics.md)")
    return found[0].load()()
