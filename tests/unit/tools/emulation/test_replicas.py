"""Replicas of the large model, as the throughput model can say them."""

from __future__ import annotations

import pytest

from router_backend.planner.latency import constant
from router_backend.planner.system import System
from tools.emulation.pair import EmulatedPair, a100_pair
from tools.emulation.replicas import shared, spread, with_replicas
from tools.simulated.prediction import prediction

pytestmark = pytest.mark.filterwarnings("ignore:native chain solver is not built:RuntimeWarning")


def test_a_visit_goes_to_any_replica_with_equal_chance_and_stays_there() -> None:
    pair = EmulatedPair((constant(6.0), constant(20.0)), 0.5, 0.25)
    found = with_replicas(pair.system(), 2)

    assert found.routing.probabilities == ((0.5, 0.25, 0.25), (0.25, 0.75, 0.0), (0.25, 0.0, 0.75))
    assert found.routing.commits == ((1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (1.0, 0.0, 1.0))
    assert found.latencies == (constant(6.0), constant(20.0), constant(20.0))


def test_one_replica_is_the_pair_itself() -> None:
    system = a100_pair().system()
    assert with_replicas(system, 1) == System(system.routing, system.latencies)


def test_a_request_alone_gains_nothing_and_two_no_longer_wait_for_each_other_as_long() -> None:
    system = a100_pair().system()
    doubled = with_replicas(system, 2)
    one, two = (
        [prediction(found, [1] * found.model_count, n).throughput for found in (system, doubled)]
        for n in (1, 2)
    )
    assert one[0] == pytest.approx(one[1])
    assert two[0] < two[1] < 2 * one[0]


def test_thresholds_are_divided_among_replicas_and_rounded_up() -> None:
    assert [shared((2, large), 2) for large in (1, 2, 5)] == [(2, 1), (2, 1), (2, 3)]
    assert spread((2, 3), 3) == (2, 3, 3, 3)
