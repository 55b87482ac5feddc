"""The paper's schedule figure, run by the real schedulers: mean latencies and timelines."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from router_backend.scheduler.rounds import Mode
from router_backend.simulation.cluster import Cluster
from router_backend.simulation.schedule_figure import (
    MODES,
    NAMES,
    figure_cluster,
    mean_latency,
    without_drain_rules,
)
from tools.timeline.record import Timeline

UNREACHABLE_THRESHOLD = 3
"""The last two requests of the figure cannot meet it."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """A run that came to rest with requests unended; seconds."""

    at: float
    unended: tuple[str, ...]


def finished(mode: Mode) -> Cluster:
    """The figure's system in `mode`, after its end and every check."""
    cluster = figure_cluster(mode)
    cluster.run()
    cluster.check_end()
    return cluster


def mean_latencies() -> dict[str, Fraction]:
    """Seconds, by mode."""
    return {mode.value: mean_latency(finished(mode)) for mode in MODES}


def with_threshold_3() -> tuple[Stuck, Fraction]:
    """Delayed batching with threshold 3: where it hangs without drain rules, and the mean with them."""
    stuck = without_drain_rules(figure_cluster(Mode.DELAYED, UNREACHABLE_THRESHOLD))
    stuck.run()
    drained = figure_cluster(Mode.DELAYED, UNREACHABLE_THRESHOLD)
    drained.run()
    drained.check_end()
    return Stuck(stuck.now, tuple(key.request_id for key in stuck.home.unended)), mean_latency(drained)


def timelines() -> list[Timeline]:
    """A panel per mode."""
    return [_timeline(mode) for mode in MODES]


def _timeline(mode: Mode) -> Timeline:
    cluster = finished(mode)
    mean = mean_latency(cluster)
    title = f"{mode.value.replace('_', ' ')}: mean latency {mean} = {float(mean):.2f}"
    return Timeline(title, NAMES, tuple(cluster.launches))
