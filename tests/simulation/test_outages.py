"""Random systems whose models are killed and stopped: whatever the policy says is kept, and nothing stays."""

from __future__ import annotations

import pytest

from router_backend.handoff.farewells import Farewells
from router_backend.simulation.mortal_cluster import MortalCluster
from router_backend.simulation.scenario import mortal_scenario
from router_backend.stream.lives import PeerLoss

SEEDS = range(40)


def finished(seed: int, models: int, drop_p: float, choice: PeerLoss) -> MortalCluster:
    cluster = mortal_scenario(seed, models, drop_p, choice).finished()
    assert isinstance(cluster, MortalCluster)
    return cluster


@pytest.mark.parametrize("choice", PeerLoss)
@pytest.mark.parametrize("models", [2, 3])
def test_models_that_die_and_sleep_break_no_promise(models: int, choice: PeerLoss) -> None:
    recoveries = sum(finished(seed, models, 0.0, choice).recoveries for seed in SEEDS)
    assert (recoveries > 100) == (choice is not PeerLoss.FAIL), recoveries


@pytest.mark.parametrize("choice", PeerLoss)
def test_nor_with_messages_lost_as_well(choice: PeerLoss) -> None:
    clusters = [finished(seed, 2, 0.03, choice) for seed in SEEDS]
    assert sum(cluster.network.dropped for cluster in clusters) > 50


def test_the_same_seed_is_the_same_story() -> None:
    digests = [finished(7, 3, 0.0, PeerLoss.RETRY).trace.digest() for _ in range(2)]
    assert digests[0] == digests[1]


def test_without_farewells_those_who_wake_up_would_hold_requests_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The checkers see what the farewells are for."""
    monkeypatch.setattr(Farewells, "again", lambda self, peer: [])
    with pytest.raises(AssertionError, match=r"--replay 2 2 0.0 delayed retry.*left behind"):
        for seed in range(2, 3):
            finished(seed, 2, 0.0, PeerLoss.RETRY)
