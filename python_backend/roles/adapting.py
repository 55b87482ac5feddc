"""Adaptive thresholds in one subserver: its reports, and on the leader the worker that answers them.

With fixed thresholds nothing of this runs and nothing is posted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from python_backend.config import Deployment
from python_backend.loops.decode_loop import DecodeEvent
from python_backend.loops.event_log import Step
from python_backend.loops.inbox import Inbox
from python_backend.loops.planning_loop import PlanningLoop
from python_backend.loops.step_tally import StepTally
from router_backend import native
from router_backend.core.effects import Effect, Send
from router_backend.core.errors import ConfigError
from router_backend.core.replicas import ReplicaIndex, Replicas
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Observation, Thresholds
from router_backend.planner.adaptation import Adaptation, AdaptationSettings, unhurried
from router_backend.planner.controller import UNHURRIED, Cause
from router_backend.planner.latency import StepLatency
from router_backend.planner.profile import parse_profile
from router_backend.scheduler.gate import Table
from router_backend.scheduler.rounds import LEADER

FIRST = ReplicaIndex(LEADER)
"""Who leads: the first replica of the leading model."""


class Adapting:
    """`note` and `report` from the decode loop's thread, `hear` from the handoff loop's."""

    def __init__(
        self,
        deployment: Deployment,
        subserver: ReplicaIndex,
        inbox: Inbox[DecodeEvent],
        clock: Callable[[], float],
    ) -> None:
        self.perform: Callable[[list[Effect]], None] = lambda effects: None
        """Carries messages to the other subservers."""
        self.is_on = deployment.thresholds == "auto"
        self.planning: PlanningLoop | None = None
        self._inbox = inbox
        self._replicas = deployment.replicas
        everybody = map(ReplicaIndex, range(len(self._replicas)))
        self._peers = [peer for peer in everybody if peer != subserver]
        model, entry = self._replicas.models[subserver], ModelIndex(deployment.entry_index)
        self._tally = StepTally(model, entry, len(deployment.models))
        if self.is_on and subserver == FIRST:
            adaptation = _adaptation(deployment, clock())
            self.planning = PlanningLoop(LEADER, adaptation, self._announce, clock)

    def note(self, step: Step) -> None:
        if self.is_on:
            self._tally.note(step)

    def report(self, live: int) -> None:
        """Tell the leader what has come together; `live` requests are in the system."""
        seen = self._tally.report(live) if self.is_on else None
        if seen is None:
            return
        if self.planning is None:
            self.perform([Send(FIRST, seen)])
        else:
            self.planning.hear(seen)

    def hear(self, observation: Observation) -> None:
        """A peer's report; whoever does not lead has no use for it."""
        if self.planning is not None:
            self.planning.hear(observation)

    def figures(self) -> dict[str, float | dict[str, float]]:
        """For the metrics page; empty on all but the leader."""
        if self.planning is None:
            return {}
        figures = self.planning.figures
        return {
            "predicted_throughput": figures.throughput,
            "threshold_solutions": figures.solutions,
            "threshold_solving_seconds": figures.solving_s,
            "threshold_cause": {cause.value: float(cause is figures.cause) for cause in Cause},
        }

    def _announce(self, thresholds: Thresholds) -> None:
        thresholds = thresholds.replaced(table=shared(thresholds.table, self._replicas))
        self._inbox.put(thresholds)
        self.perform([Send(peer, thresholds) for peer in self._peers])


def shared(table: Table, replicas: Replicas) -> Table:
    """A plan for one subserver of each model, for several: each gets its share of a model's requests, and
    waits for a batch of that share. The planner does not know replicas: this is no optimum."""
    if replicas.is_single:
        return table
    rows = [zip(row, replicas.counts, strict=True) for row in table]
    return tuple(tuple(-(-threshold // count) for threshold, count in row) for row in rows)


def read_latencies(deployment: Deployment) -> tuple[StepLatency, ...] | None:
    """Of the profile that the deployment names, for its models; ConfigError when it does not fit them."""
    if not deployment.profile:
        return None
    path = Path(deployment.profile)
    try:
        profiles = parse_profile(json.loads(path.read_text()))
    except OSError as error:
        raise ConfigError(f"profile: {path}: {error.strerror}") from error
    except (ConfigError, json.JSONDecodeError) as error:
        raise ConfigError(f"profile: {path}: {error}") from error
    if len(profiles) != len(deployment.models):
        raise ConfigError(f"profile: {path}: {len(profiles)} models, the deployment has {deployment.names}")
    return tuple(profile.latency for profile in profiles)


def _adaptation(deployment: Deployment, now: float) -> Adaptation:
    batch_max = tuple(model.batch_max for model in deployment.models)
    settings = AdaptationSettings()
    if not native.is_compiled():
        settings = unhurried(settings, UNHURRIED)
    return Adaptation(batch_max, read_latencies(deployment), now, settings)
