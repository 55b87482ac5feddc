"""When a batch starts, and why."""

from __future__ import annotations

import itertools
import math

import pytest

from router_backend.core.errors import ConfigError
from router_backend.core.replicas import Replicas
from router_backend.scheduler.batch import Hold, Launch, LaunchReason
from router_backend.scheduler.gate import BatchGate, feasible_thresholds


def gate(*thresholds: int, model: int = 1, batch_max: int = 16, deadline_s: float = 2.0) -> BatchGate:
    return BatchGate(model, thresholds, batch_max, deadline_s)


def decide(chosen: BatchGate, ready: int, live: int, waited_s: float = 0.0) -> Launch | Hold:
    return chosen.decide(ready=ready, live=live, oldest_at=10.0, now=10.0 + waited_s)


def test_nothing_ready_is_no_reason_to_wake_up():
    assert decide(gate(1, 1), ready=0, live=3) == Hold(None)


def test_a_full_queue_starts_at_once():
    assert decide(gate(1, 3), ready=3, live=8) == Launch(LaunchReason.THRESHOLD)


def test_a_short_queue_waits_until_its_deadline_counted_from_the_first():
    assert decide(gate(1, 3), ready=2, live=8, waited_s=0.5) == Hold(12.0)
    assert decide(gate(1, 3), ready=2, live=8, waited_s=2.0) == Launch(LaunchReason.DEADLINE)


def test_a_lone_request_is_never_delayed():
    assert decide(gate(1, 8), ready=1, live=1) == Launch(LaunchReason.ALONE)


def test_all_live_requests_waiting_here_releases_them():
    assert decide(gate(1, 8), ready=3, live=3) == Launch(LaunchReason.IDLE_RELEASE)


def test_a_draining_system_lowers_the_threshold():
    assert decide(gate(4, 4), ready=3, live=4) == Launch(LaunchReason.DRAIN)


@pytest.mark.parametrize("live", range(1, 9))
def test_feasible_thresholds_leave_no_distribution_of_requests_that_is_stuck(live):
    for thresholds in itertools.product(range(1, live + 4), repeat=2):
        small, large = feasible_thresholds(thresholds, live)
        stuck = [k for k in range(live + 1) if k < small and live - k < large]

        assert not stuck
        assert small <= thresholds[0] and large <= thresholds[1]


def test_feasible_thresholds_are_left_alone():
    assert feasible_thresholds((2, 3), 4) == (2, 3)
    assert feasible_thresholds((2, 3), 3) == (2, 2)
    assert feasible_thresholds((5, 5, 5), 1) == (1, 1, 1)


@pytest.mark.parametrize(
    ("thresholds", "batch_max", "deadline_s", "key"),
    [((1, 0), 4, 1.0, "threshold"), ((1, 5), 4, 1.0, "batch_max"), ((1, 1), 4, -1.0, "deadline_s"),
     ((1, 1), 4, float("nan"), "deadline_s")],
)  # fmt: skip
def test_a_setting_that_could_hang_is_refused_by_name(thresholds, batch_max, deadline_s, key):
    with pytest.raises(ConfigError, match=key):
        gate(*thresholds, batch_max=batch_max, deadline_s=deadline_s)


def test_a_table_gives_each_number_of_live_requests_its_own_threshold():
    chosen = gate(1, 1, batch_max=4)
    chosen.use(((1, 1), (1, 2), (1, 2), (1, 3), (1, 9)), until=99.0)

    assert [chosen.threshold(live) for live in (0, 1, 2, 3, 4, 5, 50)] == [1, 1, 2, 2, 3, 4, 4]
    assert decide(chosen, ready=3, live=4) == Launch(LaunchReason.THRESHOLD)
    assert decide(chosen, ready=4, live=50) == Launch(LaunchReason.THRESHOLD)
    assert decide(chosen, ready=2, live=4, waited_s=2.0) == Launch(LaunchReason.DEADLINE)


def test_a_table_whose_term_is_over_makes_room_for_what_is_configured_and_wakes_who_waits():
    chosen = gate(1, 1)
    chosen.use(((1, 5),), until=11.0)
    waiting = decide(chosen, ready=2, live=8)
    chosen.expire(10.9)
    before = chosen.threshold(8)
    chosen.expire(11.0)

    assert (waiting, before) == (Hold(11.0), 5)
    assert decide(chosen, ready=2, live=8) == Launch(LaunchReason.THRESHOLD)


@pytest.mark.parametrize("table", [(), ((1,),), ((1, 1), (1, 0)), ((1, 1, 1),)])
def test_a_table_that_does_not_fit_the_models_is_refused(table):
    chosen = gate(1, 2)
    with pytest.raises(ConfigError, match="thresholds: rows of 2"):
        chosen.use(table, until=99.0)
    assert chosen.table == ((1, 2),)


def test_with_replicas_the_bound_holds_for_all_subservers_together() -> None:
    """Wherever live requests wait, somebody has enough to start: sum(threshold - 1) < live."""
    replicas = Replicas((2, 3))
    gates = [
        BatchGate(replicas.models[number], (4, 6), 16, math.inf, replicas, number)
        for number in range(len(replicas))
    ]
    for live in range(1, 40):
        assert sum(gate.threshold(live) - 1 for gate in gates) < live
    assert [gate.threshold(39) for gate in gates] == [4, 6, 4, 6, 6]


def test_a_threshold_is_never_above_what_can_still_come() -> None:
    gate = BatchGate(1, (1, 6), 16, math.inf, Replicas((1, 2)), 1)
    waiting = {"ready": 2, "live": 30, "oldest_at": 0.0, "now": 1.0}
    assert gate.decide(**waiting) == Hold(math.inf)
    assert gate.decide(**waiting, coming=3) == Hold(math.inf)
    assert gate.decide(**waiting, coming=2) == Launch(LaunchReason.IDLE_RELEASE)
