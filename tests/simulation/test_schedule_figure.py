"""The paper's schedule figure, to the number (arXiv:2610.12242, figure 3; shared planner notes, section 3).

Three requests at time 0, small step 1, large step 3.5: A = SSSSS, B = SLSLS, C = SSLSL, where symbol i
says which model writes token i.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from router_backend.core.request import ModelIndex, Request, RequestId
from router_backend.policies.base import BaseRouter, Place, Router
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import IntArray, LaunchReason, StepBatch
from router_backend.scheduler.rounds import Mode
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.cluster import Cluster, Deployment

SCHEDULE = {"A": "SSSSS", "B": "SLSLS", "C": "SSLSL"}
SMALL_S, LARGE_S = 1.0, 3.5


class Written(BaseRouter):
    """Every token is kept, and the next one is written by whom the schedule says."""

    def route(self, step: StepBatch) -> IntArray:
        written = zip(step.sequences, step.out_step, strict=True)
        authors = [SCHEDULE[sequence.request_id][number + 1 : number + 2] for sequence, number in written]
        return np.array([self.place.destination(ModelIndex(int(author == "L"))) for author in authors])


class WrittenBook(PolicyBook):
    def router(self, spec: object) -> Router:
        return Written(self.place)


def cluster(mode: Mode, large_threshold: int) -> Cluster:
    settings = [
        SchedulerSettings(ModelIndex(model), (1, large_threshold), 64, 4, 64, 8, 64, math.inf, mode)
        for model in range(2)
    ]
    deployment = Deployment(tuple(settings), ((SMALL_S,), (LARGE_S,)))
    places = [Place(ModelIndex(model), ("small", "large"), ModelIndex(0), 97) for model in range(2)]
    made = Cluster(deployment, [WrittenBook(place) for place in places])
    for name in SCHEDULE:
        made.submit(Request(RequestId(name), (1, 2, 3), max_tokens=5), at=0.0)
    return made


def latencies(finished: Cluster) -> tuple[Fraction, ...]:
    return tuple(Fraction(answer.latency_s) for answer in finished.home.answers.values())


@pytest.mark.parametrize(
    ("mode", "ends", "mean"),
    [
        (Mode.STEP_SYNC, ("12.5", "12.5", "15"), Fraction(40, 3)),
        (Mode.MODEL_SYNC, ("15.5", "10", "13.5"), Fraction(13)),
        (Mode.EAGER_ASYNC, ("5", "12.5", "15"), Fraction(65, 6)),
        (Mode.DELAYED, ("5", "11", "10"), Fraction(26, 3)),
    ],
)
def test_the_four_modes(mode: Mode, ends: tuple[str, ...], mean: Fraction) -> None:
    finished = cluster(mode, large_threshold=2)
    finished.run()
    finished.check_end()
    assert latencies(finished) == tuple(map(Fraction, ends))
    assert sum(latencies(finished)) / 3 == mean
    assert all(
        "".join("SL"[token.model] for token in answer.tokens) == SCHEDULE[name]
        for name, answer in finished.home.answers.items()
    )


def test_the_timeline_of_delayed_batching() -> None:
    finished = cluster(Mode.DELAYED, large_threshold=2)
    finished.run()
    launches = finished.launches
    assert [(launch.at, "SL"[launch.model], "".join(sorted(launch.request_ids))) for launch in launches] == [
        (0.0, "S", "ABC"),
        (1.0, "S", "AC"),
        (2.0, "S", "A"),
        (2.0, "L", "BC"),
        (3.0, "S", "A"),
        (4.0, "S", "A"),
        (5.5, "S", "BC"),
        (6.5, "L", "BC"),
        (10.0, "S", "B"),
    ]


def test_a_threshold_that_the_last_requests_cannot_meet_is_bounded_by_the_live_ones() -> None:
    """Without such a rule this one waits for ever from 5 on."""
    finished = cluster(Mode.DELAYED, large_threshold=3)
    finished.run()
    finished.check_end()
    assert latencies(finished) == (5, 14, 13)
    assert sum(latencies(finished)) / 3 == Fraction(32, 3)
    assert [launch.reason for launch in finished.launches if launch.at == 5.0] == [LaunchReason.IDLE_RELEASE]
