"""Spans of a request: what the front saw, in OpenTelemetry's form, and nothing while nobody asks for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from python_backend.loops.base import Finish
from python_backend.loops.story import Stay, Story
from python_backend.roles.tracing import EXPORTER, Ended, Part, Tracing, attributes, open_tracing, parts
from router_backend.core.effects import Reason
from router_backend.core.errors import ConfigError
from tests.unit.loops.front_bench import LARGE, SMALL, close, emit, ready_bench

NAMES = ("small", "large")
STAYS = [Stay(0, 1.3, 1.5, 3), Stay(1, 1.9, 1.9, 1), Stay(0, 2.0, 2.1, 2)]
STORY = Story(1.0, "mine", "r_stitch", 1.1, STAYS)
DONE = Finish(Reason.STOP, prompt_tokens=7, output_tokens=6, discarded_tokens=1, handoffs=2)


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    kept = InMemorySpanExporter()
    yield kept
    kept.shutdown()


def traced(exporter: InMemorySpanExporter, *told: tuple[Story, Finish]) -> tuple[ReadableSpan, ...]:
    """The spans of what was told, as they were ended: children before their request."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider, NAMES, 0, "token_router")
    for story, finish in told:
        tracing.note(story, finish)
    tracing.start()
    tracing.stop()
    return exporter.get_finished_spans()


def test_a_request_is_queue_first_token_runs_and_hand_offs() -> None:
    to_large = {"router.source": "small", "router.target": "large"}
    to_small = {"router.source": "large", "router.target": "small"}
    assert list(parts(STORY, NAMES)) == [
        Part("queue", 1.0, 1.1, {}),
        Part("first token", 1.1, 1.3, {"router.model": "small"}),
        Part("run small", 1.3, 1.5, {"router.model": "small", "router.tokens": 3}),
        Part("hand-off", 1.5, 1.9, to_large),
        Part("run large", 1.9, 1.9, {"router.model": "large", "router.tokens": 1}),
        Part("hand-off", 1.9, 2.0, to_small),
        Part("run small", 2.0, 2.1, {"router.model": "small", "router.tokens": 2}),
    ]


def test_attributes_have_the_names_of_vllm_and_our_own() -> None:
    assert attributes(Ended(STORY, DONE, 3.0), 0) == {
        "gen_ai.request.id": "mine",
        "gen_ai.usage.prompt_tokens": 7,
        "gen_ai.usage.completion_tokens": 6,
        "gen_ai.latency.e2e": 2.0,
        "gen_ai.latency.time_in_queue": pytest.approx(0.1),
        "gen_ai.latency.time_to_first_token": pytest.approx(0.3),
        "router.policy": "r_stitch",
        "router.finish": "stop",
        "router.handoffs": 2,
        "router.discarded_tokens": 1,
        "router.routed_tokens": 1,
    }


def test_spans_are_children_of_their_request_at_the_times_that_were_seen(
    exporter: InMemorySpanExporter,
) -> None:
    *children, root = traced(exporter, (STORY, DONE))
    assert root.name == "request"
    assert root.attributes is not None
    assert root.attributes["router.door"] == "token_router"
    assert len(children) == 7
    for child in children:
        assert child.parent is not None
        assert child.parent.span_id == root.context.span_id
    seconds = [((span.start_time or 0) - (root.start_time or 0)) / 1e9 for span in children]
    assert seconds == pytest.approx([0.0, 0.1, 0.3, 0.5, 0.9, 0.9, 1.0])


def test_a_refused_request_is_one_span_with_its_error(exporter: InMemorySpanExporter) -> None:
    (span,) = traced(exporter, (Story(1.0), Finish(Reason.ERROR, "TR_QUEUE_FULL")))
    assert span.attributes is not None
    assert (span.status.is_ok, span.attributes["error.type"]) == (False, "TR_QUEUE_FULL")


def test_a_front_tells_the_course_of_each_request_and_remembers_none_while_nobody_asks() -> None:
    bench = ready_bench()
    told: list[tuple[Story, Finish]] = []
    ports = []
    for _ in range(2):
        request_id, port = bench.ask(max_tokens=3)
        ports.append(port)
        for position, model in enumerate((SMALL, LARGE, SMALL)):
            bench.send("small", emit(request_id, position, 1, model=model))
            bench.turn(0.1)
        bench.send("small", close(request_id, 3))
        bench.turn()
        bench.loop.trace(lambda story, finish: told.append((story, finish)))
    ((story, finish),) = told
    assert [(stay.model, stay.tokens) for stay in story.stays] == [(0, 1), (1, 1), (0, 1)]
    assert finish is ports[1].finish


@pytest.mark.parametrize(
    "environment", [{}, {EXPORTER: "none"}, {EXPORTER: "otlp", "OTEL_SDK_DISABLED": "true"}]
)
def test_nothing_is_traced_unless_an_exporter_is_named(environment: dict[str, str]) -> None:
    assert open_tracing(environment, NAMES, 0, "token_router") is None


def test_the_console_exporter_of_the_sdk_is_found() -> None:
    tracing = open_tracing({EXPORTER: "console"}, NAMES, 0, "token_router")
    assert tracing is not None
    tracing.stop()


def test_a_missing_exporter_and_a_missing_sdk_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="exporter 'nowhere'"):
        open_tracing({EXPORTER: "nowhere"}, NAMES, 0, "token_router")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"token-router\[otel\]"):
        open_tracing({EXPORTER: "console"}, NAMES, 0, "token_router")
