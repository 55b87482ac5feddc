"""Faults come when they are due, one after the other, and nobody stays stopped."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field

from tools.soaking.faults import BACK_S_MAX, FREEZE_S, RECOVERY_S_MAX, Fault, Kind, Strike, Striker, schedule


def test_ten_minutes_have_nine_kills_and_one_freeze_between_them() -> None:
    found = schedule(600.0, 60.0)

    assert [fault.at_s for fault in found if fault.kind is Kind.KILL] == [60.0 * at for at in range(1, 10)]
    assert [fault.at_s for fault in found if fault.kind is Kind.FREEZE] == [270.0]
    assert sorted(found, key=lambda fault: fault.at_s) == list(found)


def test_a_short_run_kills_only_as_often_as_there_is_time_to_recover() -> None:
    assert schedule(20.0, 8.0) == (Fault(8.0, Kind.KILL),)
    assert schedule(17.0, 8.0) == ()
    assert schedule(70.0, 20.0) == tuple(Fault(at, Kind.KILL) for at in (20.0, 40.0, 60.0))


@dataclass
class World:
    """A model's process, and a clock that moves on when somebody waits; the model answers from `back_at`."""

    now: float = 0.0
    back_s: float = 3.0
    pid: int = 50
    back_at: float = 0.0
    told: list[tuple[float, int, int]] = field(default_factory=list)

    def stubs(self) -> dict[str, int]:
        return {"large": self.pid} if self.pid else {}

    def kill(self, pid: int, number: int) -> None:
        self.told.append((self.now, pid, number))
        if number != signal.SIGSTOP:
            self.back_at, self.pid = self.now + self.back_s, pid + 1

    def striker(self) -> Striker:
        return Striker(self, "large", lambda: self.now >= self.back_at, self.kill, lambda: self.now)


class Waiting(threading.Event):
    """An event whose waits take no time but move the clock on."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:
        self._world.now = round(self._world.now + (timeout or 0.0), 6)
        return self.is_set()


def test_a_kill_lasts_until_the_model_answers() -> None:
    world = World()
    found = world.striker().run((Fault(8.0, Kind.KILL), Fault(20.0, Kind.KILL)), 0.0, Waiting(world))

    assert world.told == [(8.0, 50, signal.SIGKILL), (20.0, 51, signal.SIGKILL)]
    assert [(one.kind, one.at_s, round(one.recovered_s or 0, 3)) for one in found] == [
        (Kind.KILL, 8.0, 3.0),
        (Kind.KILL, 20.0, 3.0),
    ]


def test_a_frozen_model_is_woken_and_recovers_from_then_on() -> None:
    world = World()
    found = world.striker().run((Fault(30.0, Kind.FREEZE),), 0.0, Waiting(world))

    assert world.told == [(30.0, 50, signal.SIGSTOP), (30.0 + FREEZE_S, 50, signal.SIGCONT)]
    assert [round(one.until_s, 3) for one in found] == [30.0 + FREEZE_S + 3.0]


def test_a_late_fault_follows_at_once_and_a_model_that_never_answers_is_told() -> None:
    world = World(back_s=10_000.0)
    found = world.striker().run((Fault(5.0, Kind.KILL), Fault(6.0, Kind.KILL)), 0.0, Waiting(world))

    assert [(one.kind, one.recovered_s) for one in found] == [(Kind.KILL, None), (Kind.KILL, None)]
    assert found[1].at_s >= 5.0 + BACK_S_MAX
    assert found[0] == Strike(Kind.KILL, 5.0, None)
    assert found[0].until_s == 5.0 + BACK_S_MAX


def test_without_a_process_there_is_no_strike_and_the_wait_for_one_is_bounded() -> None:
    world = World(pid=0)

    assert world.striker().run((Fault(5.0, Kind.KILL),), 0.0, Waiting(world)) == []
    assert round(world.now, 3) == 5.0 + RECOVERY_S_MAX


def test_when_it_is_over_nothing_more_is_struck() -> None:
    world = World()
    over = Waiting(world)
    over.set()

    assert world.striker().run((Fault(5.0, Kind.KILL),), 0.0, over) == []
    assert world.told == []


def test_a_process_that_was_taken_out_while_frozen_is_no_error() -> None:
    world = World()

    def kill(pid: int, number: int) -> None:
        if number == signal.SIGCONT:
            raise ProcessLookupError(pid)
        world.kill(pid, number)

    striker = Striker(world, "large", lambda: True, kill, lambda: world.now)
    assert [one.recovered_s for one in striker.run((Fault(1.0, Kind.FREEZE),), 0.0, Waiting(world))] == [0.0]
    assert world.now == 1.0 + FREEZE_S
