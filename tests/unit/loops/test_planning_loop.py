"""The planning worker, turn by turn, on a clock that is set; the adaptation is the real one."""

from __future__ import annotations

import threading

import pytest

from python_backend.loops.planning_loop import LASTS_S, RENEW_S, SOLVING_BURST_S, SOLVING_SHARE, PlanningLoop
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Observation, Thresholds
from router_backend.planner.adaptation import Adaptation
from router_backend.planner.controller import Cause

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
ONES = ((1, 1),)


class World:
    """A clock that is set by hand, and what was announced at which time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.announced: list[tuple[float, Thresholds]] = []
        self.loop = PlanningLoop(SMALL, Adaptation((64, 64), None, 0.0), self.announce, lambda: self.now)

    def announce(self, thresholds: Thresholds) -> None:
        self.announced.append((self.now, thresholds))

    def serve(self, seconds: float, live: int) -> None:
        """Traffic that favours waiting: half of the small steps hand over, a large one takes 4.6 as long."""
        for _ in range(round(seconds / 0.2)):
            self.loop.hear(Observation(SMALL, live, (60, 60), 60, ((4, 30, 180.0),)))
            self.loop.hear(Observation(LARGE, live, (60, 0), 60, ((8, 7, 195.3),)))
            self.rest(0.2)

    def rest(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            self.loop.turn()

    @property
    def table(self) -> tuple[tuple[int, ...], ...]:
        return self.announced[-1][1].table


def test_the_worker_announces_ones_until_it_has_seen_enough_and_a_table_then() -> None:
    world = World()
    world.loop.turn()
    empty = (set(world.table), world.loop.figures.cause)
    world.loop.hear(Observation(SMALL, 8, (0, 0), 0, ()))
    world.loop.turn()
    cold = (world.announced[-1], world.loop.figures.cause)
    world.serve(3.0, live=8)

    assert empty == ({(1, 1)}, Cause.ALONE)
    assert cold == ((0.0, Thresholds(SMALL, ONES, LASTS_S)), Cause.COLD)
    assert world.table[0] == (1, 1)
    assert world.table[7][1] > 1
    assert world.loop.figures.cause is Cause.PLAN
    assert world.loop.figures.throughput > 0
    assert world.loop.figures.solutions > 2


def test_thresholds_are_ones_as_soon_as_traffic_drains_and_rise_no_more_when_it_is_gone() -> None:
    world = World()
    world.serve(3.0, live=8)
    world.loop.hear(Observation(SMALL, 3, (0, 0), 0, ()))
    world.rest(0.1)
    draining = (world.table, world.loop.figures.cause)
    world.loop.hear(Observation(SMALL, 0, (0, 0), 0, ()))
    world.rest(10.0)

    assert draining == (ONES, Cause.DRAINING)
    assert set(world.table) == {(1, 1)}
    assert world.loop.figures.cause is Cause.ALONE


def test_a_model_that_falls_silent_ends_the_plan() -> None:
    world = World()
    world.serve(3.0, live=8)
    for _ in range(20):
        world.loop.hear(Observation(SMALL, 8, (60, 60), 60, ((4, 30, 180.0),)))
        world.rest(0.2)

    assert (world.table, world.loop.figures.cause) == (ONES, Cause.COLD)


def test_what_holds_is_said_again_before_its_term_is_over_and_otherwise_only_when_it_changes() -> None:
    world = World()
    world.rest(5.0)

    times = [at for at, _ in world.announced]
    assert len(times) == pytest.approx(5.0 / RENEW_S, abs=1)
    assert RENEW_S < LASTS_S / 2


def test_solving_takes_a_bounded_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    solved: list[float] = []

    def slow(self: Adaptation, count: int, now: float) -> None:
        solved.append(now)
        world.now += 0.3

    monkeypatch.setattr(Adaptation, "solve", slow)
    world.serve(20.0, live=8)

    assert world.loop.figures.solving_s == pytest.approx(0.3 * len(solved))
    assert world.loop.figures.solving_s < SOLVING_BURST_S + SOLVING_SHARE * world.now + 0.3


def test_a_report_that_cannot_be_is_counted_and_the_next_one_is_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.loop.hear(Observation(SMALL, 8, (1, 1, 1), 1, ()))
    world.loop.hear(Observation(LARGE, 8, (1, 0), 1, ((0, 1, 5.0),)))
    world.loop.turn()
    world.serve(3.0, live=8)

    assert (world.loop.figures.refused, world.loop.figures.cause) == (2, Cause.PLAN)
    assert "dropped what model 1 reports" in caplog.text


def test_a_resting_worker_is_ended_by_stop_from_another_thread() -> None:
    loop = World().loop
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    loop.stop()
    thread.join(10.0)

    assert not thread.is_alive()
