"""The decode loop's turn, with a scheduler and a runner that only remember."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from python_backend.loops.decode_loop import (
    BROKEN,
    INTEGRITY_S,
    SNAPSHOT_S,
    UNLOADED,
    DecodeEvent,
    DecodeLoop,
    HomeLost,
    PeerBack,
    PeerLost,
)
from python_backend.loops.event_log import Step
from python_backend.loops.inbox import Inbox
from python_backend.loops.loop_figures import LoopFigures, Phase
from python_backend.runner.base import RunnerInfo
from router_backend.core.effects import Close, Effect, Emit, Reason, Send
from router_backend.core.errors import ConfigError, EngineLostError, RemoteProtocolError, RunnerError
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex, Request, RequestId, Sampling
from router_backend.core.sequence import Sequence
from router_backend.core.state import State
from router_backend.handoff.message import Abort, Admit, Finished, Handoff
from router_backend.scheduler.batch import BatchPlan, Hold, LaunchReason, Needs, Row, StepOutput

ROW = Row(RequestId("a"), [1, 2], 0, [0], True, Sampling(), 0)
PLAN = BatchPlan(1, (ROW,), Needs(), LaunchReason.THRESHOLD)
OUTPUT = StepOutput(np.array([5]))
HEARD = Emit("front", RequestId("heard"), 0, 0, (1,), ModelIndex(0))
APPLIED = Emit("front", RequestId("a"), 0, 0, (5,), ModelIndex(0))
FAILED = Close("front", RequestId("a"), 0, Reason.ERROR, 0, "TR_RUNNER: out of memory")


class Remembering:
    """Scheduler, runner, clock and performer in one: a list of what happened. Each clock reading adds 1 s."""

    info = RunnerInfo(10, 100, 8, 16, frozenset())

    def __init__(self, *plans: BatchPlan | Hold) -> None:
        self.plans = list(plans)
        self.happened: list[Any] = []
        self.performed: list[list[Effect]] = []
        self.failure: Exception | None = None
        self.refusal: Exception | None = None
        self.on_execute: Callable[[], object] = tuple
        self.now = 0.0

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    def on(self, message: object, now: float) -> list[Effect]:
        if self.refusal:
            raise self.refusal
        self.happened.append((message, now))
        return [HEARD]

    def lose_peer(self, model: ModelIndex) -> list[Effect]:
        self.happened.append(("lose_peer", model))
        return [HEARD]

    def restore_peer(self, model: ModelIndex) -> None:
        self.happened.append(("restore_peer", model))

    def lose_home(self, home: str) -> list[Effect]:
        self.happened.append(("lose_home", home))
        return [HEARD]

    def plan(self, now: float) -> BatchPlan | Hold:
        return self.plans.pop(0) if self.plans else Hold()

    def apply(self, plan: BatchPlan, output: StepOutput, now: float) -> list[Effect]:
        self.happened.append(("apply", plan, output, now))
        return [APPLIED]

    def fail(self, plan: BatchPlan, message: str) -> list[Effect]:
        self.happened.append(("fail", plan, message))
        return [FAILED]

    def check_integrity(self) -> None:
        self.happened.append("integrity")

    def execute(self, plan: BatchPlan) -> StepOutput:
        self.happened.append(("execute", list(self.performed)))
        self.on_execute()
        if self.failure:
            raise self.failure
        return OUTPUT

    def close(self) -> None:
        return None


def loop_of(world: Remembering, *events: DecodeEvent) -> DecodeLoop:
    inbox: Inbox[DecodeEvent] = Inbox(clock=world.clock)
    for event in events:
        inbox.put(event)
    return DecodeLoop(world, world, inbox, world.performed.append, world.clock)


def abort(name: str) -> Abort:
    return Abort(RequestId(name), 0)


def test_events_are_heard_in_order_with_the_time_of_the_turn() -> None:
    world = Remembering(Hold(50.0))
    large = ModelIndex(1)
    hold = loop_of(world, abort("a"), PeerLost(large), PeerBack(large), HomeLost("front")).turn()

    assert hold == Hold(50.0)
    assert world.happened == [
        (abort("a"), 1.0),
        ("lose_peer", 1),
        ("restore_peer", 1),
        ("lose_home", "front"),
    ]
    assert world.performed == [[HEARD, HEARD, HEARD]]


def test_a_batch_runs_after_what_was_heard_has_left_and_is_applied_with_the_time_it_ended() -> None:
    world = Remembering(PLAN)
    loop = loop_of(world, abort("b"))
    hold = loop.turn()

    assert hold is None
    # Readings: 1 the turn begins, 2 the step begins, 3 the step has ended.
    assert world.happened[:3] == [
        (abort("b"), 1.0),
        ("execute", [[HEARD]]),
        ("apply", PLAN, OUTPUT, 3.0),
    ]
    assert world.performed == [[HEARD], [APPLIED]]
    assert loop.figures == LoopFigures(turns=1, steps=1)
    assert loop.figures.step_s[Phase.EXTEND].counts().total == 1.0


def test_what_arrives_during_a_step_is_heard_before_its_end() -> None:
    world = Remembering(PLAN)
    inbox: Inbox[DecodeEvent] = Inbox(clock=world.clock)
    loop = DecodeLoop(world, world, inbox, world.performed.append, world.clock)
    world.on_execute = lambda: inbox.put(abort("late"))
    loop.turn()

    assert world.happened[1:3] == [(abort("late"), 3.0), ("apply", PLAN, OUTPUT, 3.0)]
    assert world.performed == [[HEARD, APPLIED]]


def test_a_turn_without_effects_performs_nothing() -> None:
    world = Remembering(Hold())
    loop_of(world).turn()

    assert world.performed == []


def test_a_runner_error_ends_that_batch_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = Remembering(PLAN, PLAN)
    world.failure = RunnerError("out of memory")
    loop = loop_of(world)
    loop.turn()
    world.failure = None
    loop.turn()

    assert ("fail", PLAN, "TR_RUNNER: out of memory") in world.happened
    assert world.performed == [[FAILED], [APPLIED]]
    assert (loop.figures.steps, loop.figures.runner_errors) == (1, 1)
    assert "step 1 with 1 rows failed" in caplog.text


def test_a_lost_engine_ends_its_batch_and_then_the_loop() -> None:
    world = Remembering(PLAN, PLAN)
    world.failure = EngineLostError("rank 1 ended by SIGKILL")
    loop = loop_of(world)
    with pytest.raises(EngineLostError):
        loop.run()

    assert world.performed == [[FAILED]]
    assert loop.figures.runner_errors == 1


def test_an_event_that_the_scheduler_refuses_is_counted_and_the_next_one_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = Remembering(Hold(), Hold())
    world.refusal = RemoteProtocolError("a hand-off from nowhere")
    loop = loop_of(world, abort("a"))
    loop.turn()

    assert loop.figures.loop_errors == 1
    assert "Abort could not be followed: TR_PROTOCOL: a hand-off from nowhere" in caplog.text


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_a_request_that_cannot_be_taken_in_is_closed_everywhere(is_handed_over: bool) -> None:
    world = Remembering(Hold())
    world.refusal = ConfigError("policy: 'magic' is unknown")
    request = Request(RequestId("a"), (1, 2), 9)
    small, large = ModelIndex(0), ModelIndex(1)
    handoff = Handoff(RequestId("a"), 0, large, small, 0, 0, (1, 2, 7), (3, 3), request=request)
    loop = loop_of(world, handoff if is_handed_over else Admit(request))
    loop.farewells = farewells
    loop.turn()

    close = Close("front", RequestId("a"), 0, Reason.ERROR, int(is_handed_over), str(world.refusal))
    (farewell,) = farewells(request)
    assert world.performed == [[close, farewell] if is_handed_over else [close]]


def test_figures_are_published_once_per_period_and_integrity_is_checked_when_idle() -> None:
    world = Remembering(PLAN, Hold(50.0))
    times = iter([0.0, 0.0, 0.0, SNAPSHOT_S / 2, SNAPSHOT_S, INTEGRITY_S, INTEGRITY_S + SNAPSHOT_S])
    loop = DecodeLoop(world, world, Inbox(), world.performed.append, lambda: next(times))
    loop.publish = lambda: world.happened.append("publish")
    for _ in range(5):
        loop.turn()

    assert world.happened[2:] == ["publish", "publish", "integrity", "publish", "publish", "integrity"]


def held_sequence(state: State = State.RUNNING) -> Sequence:
    return Sequence(Request(RequestId("held"), (1, 2), 9), ModelIndex(0), 1, [1, 2, 7], [3, 0], state)


def farewells(request: Request) -> list[Effect]:
    """What the scheduler of the small model would tell the large one."""
    return [Send(ReplicaIndex(1), Finished(request.request_id, 0, ReplicaIndex(0)))]


def last_words(text: str) -> list[Effect]:
    """What ends `held_sequence` everywhere."""
    close = Close("front", RequestId("held"), 0, Reason.ERROR, 1, f"TR_PEER_LOST: {text}")
    return [close, *farewells(held_sequence().request)]


def test_a_stopped_loop_closes_what_it_holds_and_what_has_just_come() -> None:
    world = Remembering()
    loop = loop_of(world, Admit(Request(RequestId("new"), (1,), 9)), abort("other"))
    loop.held, loop.farewells = lambda: [held_sequence()], farewells
    loop.stop()
    loop.run()

    new = Close("front", RequestId("new"), 0, Reason.ERROR, 0, f"TR_PEER_LOST: {UNLOADED}")
    assert world.performed == [[new, *last_words(UNLOADED)]]


def test_a_stopped_loop_leaves_a_parked_request_to_whom_it_was_handed() -> None:
    world = Remembering()
    loop = loop_of(world)
    loop.held = lambda: [held_sequence(State.PENDING_RETURN)]
    loop.stop()
    loop.run()

    assert world.performed == []


@pytest.mark.parametrize("error", [AssertionError("7 blocks are nobody's"), KeyError("unforeseen")])
def test_a_broken_invariant_ends_the_loop_loudly_after_closing_everything(error: Exception) -> None:
    world = Remembering(PLAN)
    world.failure = error
    loop = loop_of(world)
    loop.held, loop.farewells = lambda: [held_sequence()], farewells

    with pytest.raises(type(error)):
        loop.run()
    assert world.performed == [last_words(BROKEN)]


def test_a_resting_loop_is_ended_by_stop_from_another_thread(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    world = Remembering()
    loop = loop_of(world)
    loop.publish = loop.stop
    loop.run()

    assert (loop.figures.turns, world.performed, caplog.text) == (1, [], "")


def test_what_follows_from_a_step_has_left_before_the_step_is_counted_and_noted() -> None:
    world = Remembering(PLAN)
    happened: list[object] = []
    loop = DecodeLoop(world, world, Inbox(), lambda effects: happened.append(loop.figures.steps), world.clock)
    loop.note = lambda step: happened.append(step.effects)
    loop.turn()

    assert happened == [0, [APPLIED]]


def test_a_step_that_has_run_is_noted_with_its_times_and_what_followed() -> None:
    world = Remembering(PLAN)
    loop = loop_of(world, abort("b"))
    noted: list[Step] = []
    loop.note = noted.append
    loop.turn()

    assert noted == [Step(2.0, 3.0, PLAN, [APPLIED])]
