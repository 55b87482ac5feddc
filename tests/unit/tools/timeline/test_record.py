"""A timeline: what is cut out of it and what is said of it."""

from __future__ import annotations

from tests.unit.tools.timeline.samples import TIMELINE, launch
from tools.timeline.record import HandoffRecord, Timeline


def test_requests_are_listed_as_they_appear():
    assert TIMELINE.request_ids == ["a", "b"]
    assert (TIMELINE.began_at, TIMELINE.ended_at) == (10.0, 15.5)


def test_a_part_begins_at_the_first_launch_of_all():
    part = TIMELINE.since_start(1.0, 2.0)

    assert part.launches == (launch(1.0, 0, 1.0, "a"), launch(2.0, 1, 3.5, "b"))
    assert part.handoffs == (HandoffRecord(1.0, "b", 0, 1),)
    assert (part.title, part.models) == (TIMELINE.title, TIMELINE.models)


def test_the_summary_counts_launches_rows_time_and_reasons():
    head, small, large = TIMELINE.summary()

    assert head.split() == ["model", "launches", "mean", "batch", "busy", "sent", "reasons"]
    assert small.split() == ["small", "2", "1.50", "36.4%", "1", "threshold", "2"]
    assert large.split() == ["large", "1", "1.00", "63.6%", "0", "threshold", "1"]


def test_a_timeline_without_launches_has_a_summary_too():
    (_, small) = Timeline("empty", ("small",), ()).summary()

    assert small.split() == ["small", "0", "0.00", "0.0%", "0", "-"]
