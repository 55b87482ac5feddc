"""The paper's schedule figure as a deployment (arXiv:2610.12242, figure 3).

Three requests at time 0, small step 1 s, large step 3.5 s: A = SSSSS, B = SLSLS, C = SSLSL, where symbol
i says which model writes token i. Real schedulers run it; only the policy is written here.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from router_backend.core.request import ModelIndex, Request, RequestId
from router_backend.policies.base import BaseRouter, HoldingRouter, Place
from router_backend.policies.guard import GuardedRouter
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import IntArray, StepBatch
from router_backend.scheduler.gate import BatchGate
from router_backend.scheduler.rounds import Mode
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.cluster import Cluster, Deployment

SCHEDULE = {"A": "SSSSS", "B": "SLSLS", "C": "SSLSL"}
NAMES = ("small", "large")
SMALL_S, LARGE_S = 1.0, 3.5
LARGE_THRESHOLD = 2
MODES = (Mode.STEP_SYNC, Mode.MODEL_SYNC, Mode.EAGER_ASYNC, Mode.DELAYED)
"""In the order of the figure."""


class _Written(BaseRouter):
    """Every token is kept, and the next one is written by whom the schedule says."""

    def route(self, step: StepBatch) -> IntArray:
        written = zip(step.sequences, step.out_step, strict=True)
        authors = [SCHEDULE[sequence.request_id][number + 1 : number + 2] for sequence, number in written]
        return np.array([self.place.destination(ModelIndex(int(author == "L"))) for author in authors])


class _WrittenBook(PolicyBook):
    def router(self, spec: object) -> HoldingRouter:
        return GuardedRouter("written", _Written(self.place))


class UnboundedGate(BatchGate):
    """Delayed batching as it must not be built: the threshold ignores how many requests are live."""

    def threshold(self, live: int) -> int:
        return self.thresholds[self.model]


def figure_cluster(mode: Mode, large_threshold: int = LARGE_THRESHOLD) -> Cluster:
    """The figure's system, ready to `run`."""
    settings = [
        SchedulerSettings(ModelIndex(model), (1, large_threshold), 64, 4, 64, 8, 64, math.inf, mode)
        for model in range(2)
    ]
    deployment = Deployment(tuple(settings), ((SMALL_S,), (LARGE_S,)))
    places = [Place(ModelIndex(model), NAMES, ModelIndex(0), 97) for model in range(2)]
    made = Cluster(deployment, [_WrittenBook(place) for place in places])
    for name in SCHEDULE:
        made.submit(Request(RequestId(name), (1, 2, 3), max_tokens=5), at=0.0)
    return made


def without_drain_rules(cluster: Cluster) -> Cluster:
    """The same with gates that wait for the whole threshold whatever happens."""
    for scheduler in cluster.schedulers:
        gate = scheduler.gate
        scheduler.gate = UnboundedGate(gate.model, gate.thresholds, gate.batch_max, gate.deadline_s)
    return cluster


def mean_latency(finished: Cluster) -> Fraction:
    """Mean time from arrival to the last token, exactly, in seconds; every request has ended."""
    latencies = [Fraction(answer.latency_s) for answer in finished.home.answers.values()]
    return sum(latencies, Fraction()) / len(latencies)
