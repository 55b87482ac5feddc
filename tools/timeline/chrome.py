"""A timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One track per model, one slice per batch, one arrow per hand-off: from the end of the step that decided it
to the first batch of the target that the request is in.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any

from tools.timeline.record import HandoffRecord, Timeline

PROCESS = 1
INSIDE_US = 0.001
"""An arrow belongs to the slice around it, so it leaves this long before the step has ended."""

Event = dict[str, Any]


def trace_document(timeline: Timeline) -> dict[str, object]:
    """The JSON object; times in microseconds since the first launch."""
    shifted = timeline.since_start(0.0, float("inf"))
    events = [*_names(shifted), *_slices(shifted), *_arrows(shifted)]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _names(timeline: Timeline) -> Iterator[Event]:
    yield {"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": timeline.title}}
    for model, name in enumerate(timeline.models):
        track = {"ph": "M", "pid": PROCESS, "tid": model}
        yield track | {"name": "thread_name", "args": {"name": name}}
        yield track | {"name": "thread_sort_index", "args": {"sort_index": model}}


def _slices(timeline: Timeline) -> Iterator[Event]:
    for launch in timeline.launches:
        yield {
            "ph": "X",
            "pid": PROCESS,
            "tid": launch.model,
            "ts": _us(launch.at),
            "dur": _us(launch.step_s),
            "cat": "batch",
            "name": f"{len(launch.request_ids)} rows",
            "args": {"reason": launch.reason.value, "requests": list(launch.request_ids)},
        }


def _arrows(timeline: Timeline) -> Iterator[Event]:
    starts = _starts(timeline)
    for number, handoff in enumerate(timeline.handoffs):
        begins = starts.get((handoff.target, handoff.request_id), [])
        found = bisect.bisect_left(begins, handoff.at - INSIDE_US / 1e6)
        if found < len(begins):
            yield _end("s", number, handoff, handoff.source, _us(handoff.at) - INSIDE_US)
            yield _end("f", number, handoff, handoff.target, _us(begins[found])) | {"bp": "e"}


def _starts(timeline: Timeline) -> dict[tuple[int, str], list[float]]:
    """When each request's batches began, by (model, request), rising."""
    starts: dict[tuple[int, str], list[float]] = {}
    for launch in timeline.launches:
        for request_id in launch.request_ids:
            starts.setdefault((launch.model, request_id), []).append(launch.at)
    return starts


def _end(phase: str, number: int, handoff: HandoffRecord, model: int, at_us: float) -> Event:
    start = {"ph": phase, "id": number, "pid": PROCESS, "tid": model, "ts": round(at_us, 3)}
    return start | {"cat": "handoff", "name": f"hand-off of {handoff.request_id}"}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
