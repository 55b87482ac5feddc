"""Barrier modes: rounds of steps, led by model 0."""

from __future__ import annotations

import pytest

from router_backend.core.effects import Effect, Send
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Go, Report
from router_backend.scheduler.batch import Hold, LaunchReason
from router_backend.scheduler.rounds import Mode, Rounds
from tests.builders import ALWAYS, handoffs, output, plan, request, scheduler, step, stitch

SMALL, LARGE = ModelIndex(0), ModelIndex(1)


def reports(effects: list[Effect]) -> list[Effect]:
    sends = [effect for effect in effects if isinstance(effect, Send)]
    return [effect for effect in sends if isinstance(effect.message, Report | Go)]


def test_a_round_starts_everybody_who_is_waited_for():
    rounds = Rounds(Mode.STEP_SYNC, [0, 2])

    assert rounds.hear(Report(SMALL, 1)) == [SMALL, LARGE]


def test_the_next_round_waits_for_the_slowest():
    rounds = Rounds(Mode.STEP_SYNC, [1, 1])
    rounds.hear(Report(SMALL, 1))

    assert rounds.hear(Report(SMALL, 1, (0, 0), is_step_over=True)) == []
    assert rounds.hear(Report(LARGE, 0, (1, 0), is_step_over=True)) == [SMALL]


def test_one_model_at_a_time_and_the_large_one_first():
    rounds = Rounds(Mode.MODEL_SYNC, [0, 0])
    assert rounds.hear(Report(SMALL, 3)) == [SMALL]

    assert rounds.hear(Report(SMALL, 2, (0, 1), is_step_over=True)) == [LARGE]
    assert rounds.hear(Report(LARGE, 0, (1, 0), is_step_over=True)) == [SMALL]


def test_a_model_that_is_gone_holds_up_no_round():
    rounds = Rounds(Mode.STEP_SYNC, [1, 1])
    rounds.hear(Report(SMALL, 1))
    rounds.hear(Report(SMALL, 1, (0, 0), is_step_over=True))

    assert rounds.lose(LARGE) == [SMALL]


@pytest.mark.parametrize(
    ("mode", "thresholds"),
    [(Mode.DELAYED, (1, 3)), (Mode.EAGER_ASYNC, (1, 1)), (Mode.STEP_SYNC, (1, 1)), (Mode.MODEL_SYNC, (1, 1))],
)
def test_only_delayed_batching_waits_for_more_than_one(mode, thresholds):
    assert mode.in_force((1, 3)) == thresholds
    assert scheduler(1, mode=mode, thresholds=(1, 3)).gate.thresholds == thresholds


def test_a_follower_runs_only_on_the_leaders_word_and_reports_afterwards():
    leader, follower = scheduler(0, mode=Mode.STEP_SYNC), scheduler(1, mode=Mode.STEP_SYNC)
    leader.admit(request(policy=ALWAYS), 0.0)
    effects = step(leader, 40)
    (there,) = handoffs(effects)
    assert reports(effects) == [Send(LARGE, Go(SMALL))]

    assert reports(follower.on(there, 0.0)) == [Send(SMALL, Report(LARGE, 1))]
    assert follower.plan(9.0) == Hold()
    follower.on(Go(SMALL), 0.0)
    planned = plan(follower)
    assert planned.reason is LaunchReason.BARRIER
    effects = follower.apply(planned, output(50), 0.0)
    assert reports(effects) == [Send(SMALL, Report(LARGE, 0, (1, 0), is_step_over=True))]


def test_a_follower_with_nothing_to_run_gives_its_turn_back_at_once():
    follower = scheduler(1, mode=Mode.MODEL_SYNC)

    assert follower.on(Go(SMALL), 0.0) == [Send(SMALL, Report(LARGE, 0, (0, 0), is_step_over=True))]


def test_a_failed_step_ends_its_round_too():
    follower = scheduler(1, mode=Mode.STEP_SYNC)
    follower.admit(request(), 0.0)
    follower.on(Go(SMALL), 0.0)

    effects = follower.fail(plan(follower), "boom")
    assert reports(effects) == [Send(SMALL, Report(LARGE, 0, (0, 0), is_step_over=True))]


def test_the_leader_starts_itself_and_a_lost_follower_does_not_stop_it():
    leader = scheduler(0, mode=Mode.STEP_SYNC)
    leader.admit(request("a", policy=stitch(0.5)), 0.0)
    leader.admit(request("b", policy=stitch(0.5)), 0.0)
    effects = step(leader, 40, 41, entropy=[4.0, 0.0])
    assert reports(effects) == [Send(LARGE, Go(SMALL))]
    assert leader.on(Report(LARGE, 1), 0.0) == []

    step(leader, 42, entropy=[0.0])
    assert leader.plan(0.0) == Hold()
    assert reports(leader.lose_peer(LARGE)) == []
    assert plan(leader).rows[0].request_id == "b"


def test_asynchronous_modes_report_nothing():
    chosen = scheduler()

    assert reports(chosen.admit(request(), 0.0)) == []
    assert reports(step(chosen, 40)) == []
    assert chosen.on(Report(LARGE, 1), 0.0) == []
