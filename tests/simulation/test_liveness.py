"""No threshold strands anybody, however many requests there are, also while the last ones drain.

A prototype with fixed thresholds got stuck in 276 of 288 such settings (shared planner notes, section 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise, product

import pytest

from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, RequestKey, Sampling
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.cluster import Cluster, Deployment
from router_backend.simulation.network import PERFECT, Conditions

SMALL_S, LARGE_S = 1.0, 3.5
STITCH = PolicySpec("r_stitch", (("cutoff", 0.625),))
NEVER = PolicySpec("fixed", (("mode", "never"),))
ALWAYS = PolicySpec("fixed", (("mode", "always"),))
RARELY = PolicySpec("fixed", (("mode", "every"), ("k", 6)))
OFTEN = (STITCH, STITCH, NEVER, ALWAYS)
SELDOM = (RARELY, NEVER, RARELY, STITCH)
DELAYED = Conditions(delay_ticks_max=12)
LATE = Conditions(delay_ticks_max=8, late_p=0.2, late_ticks_max=64, duplicate_p=0.1)
LOSSY = replace(LATE, drop_p=0.05)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What makes it hard; clients that leave are every third one, at different times."""

    deadline_s: float = math.inf
    batch_max: int = 16
    policies: tuple[PolicySpec, ...] = OFTEN
    conditions: Conditions = PERFECT
    is_cancelling: bool = False
    request_s_max: float = math.inf


def swept(live: int, thresholds: tuple[int, int], trouble: Trouble) -> Cluster:
    """`live` requests of different lengths, so that the end is reached one by one; run to the end."""
    settings = [
        SchedulerSettings(ModelIndex(model), thresholds, 32, 4, 32, trouble.batch_max, 64, trouble.deadline_s)
        for model in range(2)
    ]
    deployment = Deployment(
        tuple(settings),
        ((SMALL_S,), (LARGE_S,)),
        conditions=trouble.conditions,
        seed=live,
        request_s_max=trouble.request_s_max,
    )
    cluster = Cluster(deployment)
    for index in range(live):
        policy = trouble.policies[index % 4]
        name, sampling = RequestId(f"r{index}"), Sampling(seed=index)
        cluster.submit(Request(name, (1, 2, index), 1 + index, sampling=sampling, policy=policy), at=0.0)
        if trouble.is_cancelling and index % 3 == 1:
            cluster.cancel(RequestKey(name, 0), at=2.0 + 1.5 * index)
    cluster.run(turns_max=5_000)
    return cluster


def all_thresholds(live: int) -> list[tuple[int, int]]:
    return [(small, large) for small in range(1, live + 3) for large in range(1, live + 3)]


def longest_gap_s(cluster: Cluster) -> float:
    """Between two tokens of one answer."""
    times = [answer.token_times for answer in cluster.home.answers.values()]
    return max((after - before for one in times for before, after in pairwise(one)), default=0.0)


def bound_s(thresholds: tuple[int, int], deadline_s: float, rounds: int = 1) -> float:
    """Longest gap that may be: on each model a wait for the batch, then its step.

    A model with threshold 1 lets a request wait for the step that runs, any other one at most until the
    deadline. With a small threshold of 1 that is 2 t_small + max(deadline, t_large) + t_large (shared planner
    notes, section 4). Where a batch takes a part of those who wait, a turn comes after up to `rounds` steps.
    """
    steps = zip(thresholds, (SMALL_S, LARGE_S), strict=True)
    waits = (step_s if threshold == 1 else max(deadline_s, step_s) for threshold, step_s in steps)
    return sum(waits) + rounds * (SMALL_S + LARGE_S)


@pytest.mark.parametrize("live", range(1, 9))
def test_nothing_is_stuck_without_any_deadline(live: int) -> None:
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble())
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)
        cluster.check_end()


@pytest.mark.parametrize("live", [2, 5, 8])
def test_nothing_is_stuck_with_hand_offs_under_way(live: int) -> None:
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble(conditions=DELAYED))
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)


@pytest.mark.parametrize("policies", [OFTEN, SELDOM], ids=["often", "seldom"])
@pytest.mark.parametrize("live", [3, 6, 8])
def test_nothing_is_stuck_when_messages_are_late_or_repeated_and_clients_leave(
    live: int, policies: tuple[PolicySpec, ...]
) -> None:
    for thresholds in all_thresholds(live):
        trouble = Trouble(policies=policies, conditions=LATE, is_cancelling=True)
        cluster = swept(live, thresholds, trouble)
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)
        cluster.check_end()


@pytest.mark.parametrize("live", [4, 8])
def test_what_a_lost_message_strands_ends_by_the_deadline_of_the_home(live: int) -> None:
    for thresholds in all_thresholds(live)[:: live // 2]:
        trouble = Trouble(conditions=LOSSY, is_cancelling=True, request_s_max=200.0)
        cluster = swept(live, thresholds, trouble)
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)
        ends = [answer.ended_at or math.inf for answer in cluster.home.answers.values()]
        assert max(ends) <= trouble.request_s_max + cluster.deployment.grace_s
        cluster.check_end()


@pytest.mark.parametrize("deadline_s", [1.4 * LARGE_S, 12.0])
@pytest.mark.parametrize("live", [3, 6, 8])
def test_with_a_deadline_no_gap_between_tokens_is_longer_than_the_bound(live: int, deadline_s: float) -> None:
    """These also keep the bound of a small threshold of 1, whatever the thresholds are."""
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble(deadline_s))
        cluster.check_end()
        assert longest_gap_s(cluster) <= bound_s((1, 2), deadline_s), (live, thresholds)


@pytest.mark.parametrize("policies", [OFTEN, SELDOM], ids=["often", "seldom"])
@pytest.mark.parametrize("live", [3, 5, 7, 8])
def test_nor_with_clients_that_leave_and_hand_offs_that_are_rare(
    live: int, policies: tuple[PolicySpec, ...]
) -> None:
    deadline_s = 1.4 * LARGE_S
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble(deadline_s, policies=policies, is_cancelling=True))
        cluster.check_end()
        assert longest_gap_s(cluster) <= bound_s(thresholds, deadline_s), (live, thresholds)


@pytest.mark.parametrize("live", range(2, 9))
def test_nor_under_any_cap_of_the_batch(live: int) -> None:
    """No threshold is above its cap: `BatchGate` refuses that."""
    deadline_s = 1.4 * LARGE_S
    for cap in range(1, live):
        for thresholds in product(range(1, cap + 1), repeat=2):
            cluster = swept(live, thresholds, Trouble(deadline_s, batch_max=cap))
            cluster.check_end()
            assert not cluster.home.unended, (live, cap, thresholds)
            assert longest_gap_s(cluster) <= bound_s(thresholds, deadline_s, -(-live // cap)), (
                live,
                cap,
                thresholds,
            )
