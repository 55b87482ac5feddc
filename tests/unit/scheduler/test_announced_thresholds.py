"""Thresholds that the leader announces: put in force, counted, and given up with the leader."""

from __future__ import annotations

import pytest

from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Admitted, Thresholds
from router_backend.scheduler.batch import Hold
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import request, scheduler

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
TWO_OF_FOUR = Thresholds(SMALL, ((1, 1), (1, 1), (1, 1), (2, 1)), lasts_s=3.0)


def waiting(**settings: object) -> Scheduler:
    """One of four live requests waits since 10 s."""
    chosen = scheduler(**settings)
    for name in ("b", "c", "d"):
        chosen.on(Admitted(name, 0, LARGE), 0.0)
    chosen.admit(request(), 10.0)
    return chosen


def test_announced_thresholds_hold_from_the_next_decision_until_their_term():
    chosen = waiting(deadline_s=60.0)

    assert chosen.on(TWO_OF_FOUR, 10.0) == []
    assert (chosen.plan(10.0), chosen.plan(12.9)) == (Hold(13.0), Hold(13.0))
    assert chosen.gauges()["threshold"] == 2
    assert not isinstance(chosen.plan(13.0), Hold)
    assert chosen.gauges()["threshold"] == 1


def test_repeated_thresholds_are_no_change_and_prolong_the_term():
    chosen = waiting(deadline_s=60.0)
    for now in (10.0, 11.0, 12.0):
        chosen.on(TWO_OF_FOUR, now)

    assert (chosen.counters.threshold_changes, chosen.plan(14.0)) == (1, Hold(15.0))


def test_a_lost_leader_takes_its_thresholds_along():
    chosen = waiting(model=1, deadline_s=60.0)
    chosen.on(Thresholds(SMALL, ((1, 2),), lasts_s=3.0), 10.0)
    held = chosen.plan(10.0)
    chosen.lose_peer(SMALL)

    assert held == Hold(13.0)
    assert not isinstance(chosen.plan(10.0), Hold)


def test_thresholds_of_another_deployment_are_refused_and_change_nothing():
    chosen = waiting()
    with pytest.raises(RemoteProtocolError, match="rows of 2"):
        chosen.on(Thresholds(SMALL, ((1, 2, 3),), lasts_s=3.0), 10.0)

    assert (chosen.gate.table, chosen.counters.threshold_changes) == (((1, 1),), 0)
