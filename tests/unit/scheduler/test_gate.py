"""When a batch starts, and why."""

from __future__ import annotations

import itertools

import pytest

from router_backend.core.errors import ConfigError
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
