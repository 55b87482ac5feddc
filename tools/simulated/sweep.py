"""Many random scenarios, one after the other over every kind of fault, on as many cores as there are."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from router_backend.scheduler.rounds import Mode
from router_backend.simulation.mortal_cluster import MortalCluster
from router_backend.simulation.scenario import Scenario, mortal_scenario, scenario
from router_backend.stream.lives import PeerLoss

SHOWN_MAX = 20
CHUNK = 25
KINDS = 16
"""Two and three models, each with every kind of fault: after so many seeds all had their turn."""
REPLICAS = {2: ((1, 2), (2, 1), (2, 2), (1, 3)), 3: ((1, 1, 2), (1, 2, 2), (2, 2, 2))}
"""Replicas of each model, by the number of models: one round of kinds in four is of such systems."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found; `recoveries` are lives that were begun because a model was lost."""

    seeds: int
    violations: tuple[str, ...]
    requests: int
    recoveries: int
    lost_messages: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class _Run:
    violation: str = ""
    requests: int = 0
    recoveries: int = 0
    lost_messages: int = 0


def kind_of(seed: int) -> Scenario:
    """Two and three models; healthy, lossy, and with outages under each policy, lossy or not; some with
    replicas."""
    models, kind = 2 + seed % 2, seed // 2 % (KINDS // 2)
    counts = counts_of(seed, models)
    if kind == 0:
        return scenario(seed, models, counts=counts)
    if kind == 1:
        return scenario(seed, models, drop_p=0.03, mode=Mode.EAGER_ASYNC, counts=counts)
    return mortal_scenario(seed, models, 0.03 * (kind >= 5), tuple(PeerLoss)[(kind - 2) % 3], counts)


def counts_of(seed: int, models: int) -> tuple[int, ...]:
    """Replicas of each of the `models`."""
    turn, place = divmod(seed // KINDS, 4)
    return REPLICAS[models][turn % len(REPLICAS[models])] if place == 3 else (1,) * models


def run(seeds: range) -> Swept:
    """Every seed once; a progress line on a terminal."""
    began_at = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = list(_counted(pool.map(_one, seeds, chunksize=CHUNK), len(seeds)))
    return Swept(
        len(runs),
        tuple(one.violation for one in runs if one.violation),
        sum(one.requests for one in runs),
        sum(one.recoveries for one in runs),
        sum(one.lost_messages for one in runs),
        time.monotonic() - began_at,
    )


def as_text(swept: Swept) -> str:
    lines = [*swept.violations[:SHOWN_MAX]]
    lines.append(
        f"{swept.seeds:,} seeds, {swept.requests:,} requests, {swept.recoveries:,} recoveries, "
        f"{swept.lost_messages:,} lost messages: {len(swept.violations)} violations in {swept.wall_s:.1f} s"
    )
    return "\n".join(lines)


def _one(seed: int) -> _Run:
    found = kind_of(seed)
    try:
        cluster = found.finished()
    except AssertionError as error:
        return _Run(violation=str(error))
    recoveries = cluster.recoveries if isinstance(cluster, MortalCluster) else 0
    return _Run("", len(found.requests), recoveries, cluster.network.dropped)


def _counted(runs: Iterator[_Run], total: int) -> Iterator[_Run]:
    is_shown = sys.stderr.isatty()
    for number, one in enumerate(runs, 1):
        if is_shown and (number % CHUNK == 0 or number == total):
            print(f"\r{number}/{total} seeds", end="\n" if number == total else "", file=sys.stderr)
        yield one
