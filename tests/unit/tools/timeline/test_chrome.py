"""The Chrome trace: what Perfetto needs to show tracks, slices and arrows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.tools.timeline.samples import TIMELINE, launch
from tools.timeline.chrome import trace_document
from tools.timeline.record import HandoffRecord, Timeline


def events(timeline: Timeline, phase: str) -> list[dict[str, Any]]:
    found: Any = trace_document(timeline)["traceEvents"]
    return [event for event in found if event["ph"] == phase]


def test_every_model_has_a_named_track_in_deployment_order():
    named = [event for event in events(TIMELINE, "M") if event["name"] == "thread_name"]

    assert [(event["tid"], event["args"]["name"]) for event in named] == [(0, "small"), (1, "large")]


def test_every_batch_is_a_slice_in_microseconds_since_the_first():
    slices = events(TIMELINE, "X")

    assert [(one["tid"], one["ts"], one["dur"], one["name"]) for one in slices] == [
        (0, 0.0, 1e6, "2 rows"),
        (0, 1e6, 1e6, "1 rows"),
        (1, 2e6, 3.5e6, "1 rows"),
    ]
    assert slices[0]["args"] == {"reason": "threshold", "requests": ["a", "b"]}


def test_an_arrow_leaves_inside_the_step_that_decided_it_and_ends_at_the_batch_that_took_it():
    (start,), (end,) = events(TIMELINE, "s"), events(TIMELINE, "f")

    assert (start["tid"], start["ts"]) == (0, 1e6 - 0.001)
    assert (end["tid"], end["ts"], end["bp"]) == (1, 2e6, "e")
    assert start["id"] == end["id"]
    assert start["name"] == end["name"] == "hand-off of b"


def test_a_request_that_goes_twice_has_an_arrow_to_each_of_its_batches():
    again = replace(
        TIMELINE,
        launches=(*TIMELINE.launches, launch(16.0, 0, 1.0, "b"), launch(17.0, 1, 3.5, "b")),
        handoffs=(*TIMELINE.handoffs, HandoffRecord(15.5, "b", 1, 0), HandoffRecord(17.0, "b", 0, 1)),
    )

    assert [(end["tid"], end["ts"]) for end in events(again, "f")] == [(1, 2e6), (0, 6e6), (1, 7e6)]


def test_a_hand_off_that_nobody_took_has_no_arrow():
    late = replace(TIMELINE, handoffs=(HandoffRecord(13.0, "b", 0, 1),))

    assert events(late, "s") == events(late, "f") == []
