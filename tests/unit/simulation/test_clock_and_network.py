"""Simulated time and a simulated network: ordered, seeded, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from router_backend.simulation.clock import ManualClock
from router_backend.simulation.network import PERFECT, Conditions, Network

LINK = (0, 1)


def network(seed: int = 0, **conditions: float) -> Network:
    return Network(Conditions(**conditions), np.random.default_rng(seed))  # type: ignore[arg-type]


def test_events_leave_by_time_and_then_in_the_order_in_which_they_came():
    clock: ManualClock[str] = ManualClock()
    for at, event in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        clock.schedule(at, event)

    assert [(clock.pop(), clock.now) for _ in range(4)] == [("a", 1.0), ("b", 1.0), ("c", 2.0), ("d", 2.0)]
    assert (len(clock), clock.next_at) == (0, None)


def test_events_are_never_compared():
    clock: ManualClock[object] = ManualClock()
    first, second = object(), object()
    clock.schedule(1.0, first)
    clock.schedule(1.0, second)

    assert [clock.pop(), clock.pop()] == [first, second]


def test_nothing_is_scheduled_for_the_past():
    clock: ManualClock[str] = ManualClock(now=5.0)

    with pytest.raises(AssertionError, match=r"late at 4\.0 is in the past of 5\.0"):
        clock.schedule(4.0, "late")


def test_a_perfect_network_delivers_at_once_and_draws_nothing():
    perfect = Network(PERFECT, np.random.default_rng(1))

    assert [perfect.arrivals(LINK, at) for at in (0.0, 7.5)] == [[0.0], [7.5]]
    assert perfect.rng.random() == np.random.default_rng(1).random()


def test_a_link_keeps_its_order_however_long_each_message_takes():
    slow = network(delay_ticks_max=50)
    arrivals = [slow.arrivals(LINK, now)[0] for now in range(100)]

    assert arrivals == sorted(arrivals)
    assert arrivals != list(range(100))


def test_a_late_message_is_overtaken():
    late = network(delay_ticks_max=2, late_p=0.3, late_ticks_max=100)
    arrivals = [late.arrivals(LINK, now)[0] for now in range(100)]

    assert arrivals != sorted(arrivals)
    assert 10 < late.late < 60


def test_a_repeated_message_arrives_twice_and_a_lost_one_never():
    repeating, losing = network(duplicate_p=1.0, late_ticks_max=8), network(drop_p=1.0)

    assert len(repeating.arrivals(LINK, 0.0)) == 2
    assert losing.arrivals(LINK, 0.0) == []
    assert losing.arrivals(LINK, 3.0, is_droppable=False) == [3.0]
    assert (repeating.duplicated, losing.dropped) == (1, 1)


def test_one_seed_is_one_network():
    bad = {"delay_ticks_max": 9, "late_p": 0.2, "late_ticks_max": 30, "duplicate_p": 0.2, "drop_p": 0.1}
    runs = [[net.arrivals(LINK, now) for now in range(50)] for net in (network(4, **bad), network(4, **bad))]

    assert runs[0] == runs[1]
    assert runs[0] != [network(5, **bad).arrivals(LINK, now) for now in range(50)]
