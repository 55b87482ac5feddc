"""Models with several replicas: a request stays with one of each, and all that was promised holds too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId
from router_backend.scheduler.placement import Placement
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.cluster import Cluster, Deployment
from router_backend.simulation.mortal_cluster import MortalCluster
from router_backend.simulation.outages import Faults, Outage
from router_backend.simulation.scenario import mortal_scenario, scenario
from router_backend.stream.lives import LossPolicy, PeerLoss

SEEDS = range(30)
COUNTS = [(1, 2), (2, 1), (2, 2), (1, 3), (1, 1, 2), (1, 2, 2), (2, 2, 2)]
ALWAYS = PolicySpec("fixed", (("mode", "always"),))
OFTEN = PolicySpec("fixed", (("mode", "every"), ("k", 2), ("to", "model1")))
NAMES = ("model0", "model1")


def settings(counts: tuple[int, ...], thresholds: tuple[int, ...]) -> tuple[SchedulerSettings, ...]:
    """Of all subservers of two models; no deadline helps anybody."""
    first = [
        SchedulerSettings(ModelIndex(model), thresholds, 64, 4, 64, 16, 64, math.inf, counts=counts)
        for model in range(2)
    ]
    further = [
        replace(first[model], replica=copy) for model in range(2) for copy in range(1, counts[model])
    ]
    return (*first, *further)


def deployment(counts: tuple[int, ...], thresholds: tuple[int, ...] = (1, 1)) -> Deployment:
    found = settings(counts, thresholds)
    return Deployment(found, tuple((1.0,) if one.model == 0 else (3.5,) for one in found))


def burst(cluster: Cluster, requests: int, policy: PolicySpec = OFTEN) -> Cluster:
    """All at once, of different lengths."""
    for index in range(requests):
        request = Request(RequestId(f"r{index}"), (1, 2, index), 4 + index % 9, policy=policy)
        cluster.submit(request, at=0.0)
    return cluster


def turns(cluster: Cluster) -> Iterator[None]:
    while len(cluster.clock):
        cluster.turn()
        yield


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_random_systems_keep_every_promise(counts: tuple[int, ...]) -> None:
    """Blocks on all replicas, one end, the oracle's text, and one replica of each model in a life."""
    worked: Counter[bool] = Counter()
    for seed in SEEDS:
        cluster = scenario(seed, len(counts), counts=counts).finished()
        worked += Counter(scheduler.counters.steps > 0 for scheduler in cluster.schedulers)
    assert worked[True] > 2 * worked[False]


@pytest.mark.parametrize("counts", [(1, 2), (2, 2), (1, 2, 2)], ids=str)
def test_nor_does_a_lost_message_make_them_break_one(counts: tuple[int, ...]) -> None:
    for seed in SEEDS:
        cluster = scenario(seed, len(counts), drop_p=0.03, counts=counts).finished()
        assert not cluster.home.unended, seed


@pytest.mark.parametrize("choice", PeerLoss)
@pytest.mark.parametrize("counts", [(1, 2), (2, 2), (1, 2, 2)], ids=str)
def test_replicas_that_die_and_sleep_break_no_promise(counts: tuple[int, ...], choice: PeerLoss) -> None:
    for seed in SEEDS:
        cluster = mortal_scenario(seed, len(counts), 0.0, choice, counts).finished()
        assert not cluster.home.unended, seed


@pytest.mark.parametrize("counts", [(1, 2), (2, 2), (1, 3)], ids=str)
def test_no_threshold_strands_anybody_without_a_deadline(counts: tuple[int, ...]) -> None:
    for live in range(1, 9):
        for thresholds in [(small, large) for small in (1, 2, 4) for large in (1, 2, 3, 5, 8)]:
            cluster = burst(Cluster(deployment(counts, thresholds)), live)
            cluster.run(turns_max=5_000)
            assert not cluster.home.unended, (live, thresholds)
            cluster.check_end()


def test_two_replicas_share_a_burst_with_a_difference_of_one_at_most() -> None:
    """One chooser gives each newcomer to the replica with fewer of the live ones."""
    cluster = burst(Cluster(deployment((1, 2))), 15, ALWAYS)
    placement = cluster.schedulers[0].roster.placement
    shares = [placement.load[1:] for _ in turns(cluster)]
    assert {tuple(sorted(share)) for share in shares if sum(share) == 15} == {(7, 8)}

    assert not any(placement.load)
    rows = [scheduler.counters.batch_rows for scheduler in cluster.schedulers]
    assert min(rows[1], rows[2]) > 0.35 * (rows[1] + rows[2]), rows


def test_a_gate_counts_only_what_can_come_to_its_replica() -> None:
    """With the clamp of all live requests, half of a burst of six would wait for six on each replica."""
    cluster = burst(Cluster(deployment((1, 2), (1, 6))), 6)
    cluster.run(turns_max=5_000)
    cluster.check_end()
    sizes = [len(launch.request_ids) for launch in cluster.launches if launch.model]
    assert 1 < max(sizes) <= 3


def mortal(choice: PeerLoss, is_death: bool = True) -> MortalCluster:
    """Eight requests on a small model and two large ones, of which the second is away from 6 s to 60 s."""
    loss = LossPolicy(NAMES, choice, retry_s=1000.0, lives_max=1000)
    cluster = MortalCluster(deployment((1, 2)), Faults(loss, (Outage(2, 6.0, 54.0, is_death),)))
    burst(cluster, 8)
    return cluster


def run_until(cluster: Cluster, until: float) -> None:
    while cluster.clock.next_at is not None and cluster.clock.next_at < until:
        cluster.turn()


def on_second(cluster: MortalCluster, until: float) -> set[RequestId]:
    """Requests that the second replica held at the time."""
    run_until(cluster, until)
    return {sequence.request_id for sequence in cluster.schedulers[2].roster.queues}


@pytest.mark.parametrize("is_death", [True, False], ids=["killed", "stopped"])
def test_with_fail_only_the_requests_of_the_lost_replica_end(is_death: bool) -> None:
    cluster = mortal(PeerLoss.FAIL, is_death)
    held = on_second(cluster, 6.0)
    cluster.run()
    cluster.check_end()

    failed = {
        answer.request.request_id
        for answer in cluster.home.answers.values()
        if answer.close is None or answer.close.reason.value == "error"
    }
    assert failed <= held and 0 < len(failed) < 8, (failed, held)


@pytest.mark.parametrize("choice", [PeerLoss.CONTINUE_LOCAL, PeerLoss.RETRY])
def test_with_another_life_they_go_on_at_once_on_the_other_replica(choice: PeerLoss) -> None:
    cluster = mortal(choice)
    held = on_second(cluster, 6.0)
    cluster.run()
    cluster.check_end()

    ends = [answer.ended_at or math.inf for answer in cluster.home.answers.values()]
    assert held and cluster.recoveries and max(ends) < 60.0, ends
    written = Counter(token.model for answer in cluster.home.answers.values() for token in answer.tokens)
    assert written[ModelIndex(1)] > 0


def test_new_requests_avoid_a_replica_that_is_down_and_it_gets_work_again() -> None:
    cluster = mortal(PeerLoss.FAIL)
    for index in range(8):
        late = Request(RequestId(f"late{index}"), (1, 2, 3), 6, policy=OFTEN)
        cluster.submit(late, at=20.0 if index < 4 else 80.0)
    run_until(cluster, 60.0)
    assert not cluster.schedulers[2].counters.steps
    cluster.run()
    cluster.check_end()

    assert cluster.schedulers[2].counters.steps
    late_ones = [a for key, a in cluster.home.answers.items() if key.request_id.startswith("late")]
    assert len(late_ones) == 8 and all(len(answer.tokens) == 6 for answer in late_ones)


def test_the_checkers_see_a_request_on_two_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(self: Placement, sequence, target, down):  # type: ignore[no-untyped-def]
        sequence.places = (*sequence.places[:target], -1, *sequence.places[target + 1 :])
        return real(self, sequence, target, down)

    real = Placement.settle
    monkeypatch.setattr(Placement, "settle", forgetful)
    with pytest.raises(AssertionError, match="on two replicas of a model"):
        for seed in SEEDS:
            scenario(seed, 2, counts=(1, 2)).finished()
