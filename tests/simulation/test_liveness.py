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

# Thousands of whole runs: noting their lines takes longer than they do; other tests pass the same.
pytestmark = pytest.mark.no_cover

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
UNDER_WAY_MAX = (LATE.delay_ticks_max + LATE.late_ticks_max) * LATE.tick_s
"""Seconds that one message may take."""
SOON_S = 1.4 * LARGE_S
"""The shortest deadline that is of use."""

every_count = pytest.mark.parametrize("live", range(1, 9))
either_routing = pytest.mark.parametrize("policies", [OFTEN, SELDOM], ids=["often", "seldom"])


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


@every_count
def test_nothing_is_stuck_without_any_deadline(live: int) -> None:
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble())
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)
        cluster.check_end()


@every_count
def test_nothing_is_stuck_with_hand_offs_under_way(live: int) -> None:
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble(conditions=DELAYED))
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)


@either_routing
@every_count
def test_nothing_is_stuck_when_messages_are_late_or_repeated_and_clients_leave(
    live: int, policies: tuple[PolicySpec, ...]
) -> None:
    for thresholds in all_thresholds(live):
        trouble = Trouble(policies=policies, conditions=LATE, is_cancelling=True)
        cluster = swept(live, thresholds, trouble)
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)
        cluster.check_end()


@either_routing
@every_count
def test_what_a_lost_message_strands_ends_by_the_deadline_of_the_home(
    live: int, policies: tuple[PolicySpec, ...]
) -> None:
    for thresholds in all_thresholds(live):
        trouble = Trouble(policies=policies, conditions=LOSSY, is_cancelling=True, request_s_max=200.0)
        cluster = swept(live, thresholds, trouble)
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)
        ends = [answer.ended_at or math.inf for answer in cluster.home.answers.values()]
        assert max(ends) <= trouble.request_s_max + cluster.deployment.grace_s
        cluster.check_end()


@pytest.mark.parametrize("deadline_s", [SOON_S, 12.0])
@every_count
def test_with_a_deadline_no_gap_between_tokens_is_longer_than_the_bound(live: int, deadline_s: float) -> None:
    """These also keep the bound of a small threshold of 1, whatever the thresholds are."""
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble(deadline_s))
        cluster.check_end()
        assert longest_gap_s(cluster) <= bound_s((1, 2), deadline_s), (live, thresholds)


@either_routing
@every_count
def test_nor_with_clients_that_leave_and_hand_offs_that_are_rare(
    live: int, policies: tuple[PolicySpec, ...]
) -> None:
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, Trouble(SOON_S, policies=policies, is_cancelling=True))
        cluster.check_end()
        assert longest_gap_s(cluster) <= bound_s(thresholds, SOON_S), (live, thresholds)


@either_routing
@pytest.mark.parametrize("conditions", [LATE, LOSSY], ids=["late", "lost"])
@every_count
def test_late_and_lost_messages_add_their_own_time_to_a_gap_and_no_more(
    live: int, conditions: Conditions, policies: tuple[PolicySpec, ...]
) -> None:
    """To the other model, back, and the token's own way home."""
    for thresholds in all_thresholds(live):
        trouble = Trouble(SOON_S, policies=policies, conditions=conditions, request_s_max=200.0)
        cluster = swept(live, thresholds, trouble)
        cluster.check_end()
        assert not cluster.home.unended, (live, thresholds)
        assert longest_gap_s(cluster) <= bound_s(thresholds, SOON_S) + 3 * UNDER_WAY_MAX, (live, thresholds)


@either_routing
@pytest.mark.parametrize("is_cancelling", [False, True], ids=["staying", "leaving"])
@pytest.mark.parametrize("live", range(2, 9))
def test_nor_under_any_cap_of_the_batch(
    live: int, is_cancelling: bool, policies: tuple[PolicySpec, ...]
) -> None:
    """No threshold is above its cap: `BatchGate` refuses that."""
    for cap in range(1, live):
        for thresholds in product(range(1, cap + 1), repeat=2):
            trouble = Trouble(SOON_S, cap, policies, is_cancelling=is_cancelling)
            cluster = swept(live, thresholds, trouble)
            cluster.check_end()
            assert not cluster.home.unended, (live, cap, thresholds)
            gap_s = longest_gap_s(cluster)
            assert gap_s <= bound_s(thresholds, SOON_S, -(-live // cap)), (live, cap, thresholds)


@either_routing
@pytest.mark.parametrize("live", range(2, 9))
def test_nothing_is_stuck_under_any_cap_of_the_batch_without_any_deadline(
    live: int, policies: tuple[PolicySpec, ...]
) -> None:
    """Late, repeated and lost messages besides, and clients that leave."""
    for cap in range(1, live):
        for thresholds in product(range(1, cap + 1), repeat=2):
            trouble = Trouble(math.inf, cap, policies, LOSSY, is_cancelling=True, request_s_max=200.0)
            cluster = swept(live, thresholds, trouble)
            cluster.check_end()
            assert not cluster.home.unended, (live, cap, thresholds)
