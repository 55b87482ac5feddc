"""One short timeline, and how a launch is written down."""

from __future__ import annotations

from router_backend.core.request import RequestId
from router_backend.scheduler.batch import LaunchReason
from router_backend.simulation.launches import LaunchRecord
from tools.timeline.record import HandoffRecord, Timeline


def launch(at: float, model: int, step_s: float, *names: str) -> LaunchRecord:
    return LaunchRecord(at, model, LaunchReason.THRESHOLD, step_s, tuple(map(RequestId, names)))


TIMELINE = Timeline(
    "two models",
    ("small", "large"),
    (launch(10.0, 0, 1.0, "a", "b"), launch(11.0, 0, 1.0, "a"), launch(12.0, 1, 3.5, "b")),
    (HandoffRecord(11.0, "b", 0, 1),),
)
"""a and b run on the small model, b goes to the large one and waits a second there."""
