"""No threshold strands anybody, however many requests there are, also while the last ones drain.

A prototype with fixed thresholds got stuck in 276 of 288 such settings (shared planner notes, section 4).
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, Sampling
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.cluster import Cluster, Deployment
from router_backend.simulation.network import Conditions

SMALL_S, LARGE_S = 1.0, 3.5
STITCH = PolicySpec("r_stitch", (("cutoff", 0.625),))
NEVER = PolicySpec("fixed", (("mode", "never"),))
ALWAYS = PolicySpec("fixed", (("mode", "always"),))


def swept(live: int, thresholds: tuple[int, int], deadline_s: float, delay_ticks_max: int = 0) -> Cluster:
    """`live` requests of different lengths, so that the end is reached one by one; run to the end."""
    settings = [
        SchedulerSettings(ModelIndex(model), thresholds, 32, 4, 32, 16, 64, deadline_s) for model in range(2)
    ]
    conditions = Conditions(delay_ticks_max=delay_ticks_max)
    cluster = Cluster(Deployment(tuple(settings), ((SMALL_S,), (LARGE_S,)), conditions=conditions, seed=live))
    for index in range(live):
        policy = (STITCH, STITCH, NEVER, ALWAYS)[index % 4]
        name, sampling = RequestId(f"r{index}"), Sampling(seed=index)
        cluster.submit(Request(name, (1, 2, index), 1 + index, sampling=sampling, policy=policy), at=0.0)
    cluster.run(turns_max=5_000)
    return cluster


def all_thresholds(live: int) -> list[tuple[int, int]]:
    return [(small, large) for small in range(1, live + 3) for large in range(1, live + 3)]


@pytest.mark.parametrize("live", range(1, 9))
def test_nothing_is_stuck_without_any_deadline(live: int) -> None:
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, math.inf)
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)
        cluster.check_end()


@pytest.mark.parametrize("live", [2, 5, 8])
def test_nothing_is_stuck_with_hand_offs_under_way(live: int) -> None:
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, math.inf, delay_ticks_max=12)
        assert not cluster.home.unended, (live, thresholds, cluster.home.unended)


@pytest.mark.parametrize("deadline_s", [1.4 * LARGE_S, 12.0])
@pytest.mark.parametrize("live", [3, 6, 8])
def test_with_a_deadline_no_gap_between_tokens_is_longer_than_the_bound(live: int, deadline_s: float) -> None:
    """Shared planner notes, section 4: 2 t_small + max(deadline, t_large) + t_large."""
    bound_s = 2 * SMALL_S + max(deadline_s, LARGE_S) + LARGE_S
    for thresholds in all_thresholds(live):
        cluster = swept(live, thresholds, deadline_s)
        cluster.check_end()
        gaps = [gap for answer in cluster.home.answers.values() for gap in _gaps(answer.token_times)]
        assert max(gaps, default=0.0) <= bound_s, (live, thresholds, max(gaps))


def _gaps(times: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]
