"""What steps add up to between two reports."""

from __future__ import annotations

from python_backend.loops.event_log import Step
from python_backend.loops.step_tally import StepTally
from router_backend.core.effects import Close, Effect, Emit, Reason, Send
from router_backend.core.request import ModelIndex, RequestId, Sampling
from router_backend.handoff.message import Finished, Handoff, Observation
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
RID = RequestId("a")
ROW = Row(RID, [1], 0, [0], True, Sampling(), 0)
COMMIT = Emit("front", RID, 0, 0, (5,), LARGE)
BACK = Send(SMALL, Handoff(RID, 0, LARGE, SMALL, 0, 0, (1,), (1, 1)))
ENDED: list[Effect] = [Close("front", RID, 0, Reason.STOP, 1), Send(SMALL, Finished(RID, 0, LARGE))]


def step(rows: int, step_s: float, *effects: Effect) -> Step:
    plan = BatchPlan(1, (ROW,) * rows, Needs(), LaunchReason.THRESHOLD)
    return Step(10.0, 10.0 + step_s, plan, list(effects))


def test_a_report_sums_what_the_steps_did_and_the_next_one_starts_anew() -> None:
    tally = StepTally(LARGE, SMALL, 3)
    tally.note(step(4, 0.5, COMMIT, BACK, COMMIT, COMMIT, *ENDED))
    tally.note(step(4, 0.25, COMMIT))
    tally.note(step(1, 0.125, COMMIT, BACK))

    steps = ((1, 1, 125.0), (4, 2, 750.0))
    assert tally.report(live=7) == Observation(LARGE, 7, (3, 6, 0), 5, steps)
    tally.note(step(2, 0.25))
    assert tally.report(live=7) == Observation(LARGE, 7, (0, 2, 0), 0, ((2, 1, 250.0),))


def test_nothing_is_reported_when_nothing_has_changed() -> None:
    tally = StepTally(SMALL, SMALL, 2)

    assert (tally.report(live=0), tally.report(live=3)) == (None, Observation(SMALL, 3, (0, 0), 0, ()))
    assert tally.report(live=3) is None
