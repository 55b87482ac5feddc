"""Hundreds of random systems: bad networks, small pools, aborts; not one violation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace

import pytest

from router_backend.core.effects import Reason
from router_backend.scheduler.rounds import Mode
from router_backend.simulation.cluster import Cluster
from router_backend.simulation.scenario import Scenario, scenario
from router_backend.simulation.script import Script
from tests.source_tree import ROOT

# Thousands of whole runs: noting their lines takes longer than they do; other tests pass the same.
pytestmark = pytest.mark.no_cover

BATCH = 25


def batch(first: int) -> range:
    return range(first, first + BATCH)


@pytest.mark.parametrize("first", range(0, 200, BATCH))
def test_two_models_keep_every_promise(first: int) -> None:
    for seed in batch(first):
        assert not scenario(seed).finished().home.unended, seed


@pytest.mark.parametrize("models", [1, 3])
@pytest.mark.parametrize("first", [200, 225])
def test_one_model_and_three_keep_them_too(first: int, models: int) -> None:
    for seed in batch(first):
        assert not scenario(seed, models).finished().home.unended, seed


@pytest.mark.parametrize("mode", [Mode.EAGER_ASYNC, Mode.STEP_SYNC, Mode.MODEL_SYNC])
@pytest.mark.parametrize("models", [2, 3])
def test_every_mode_writes_the_same_answers(models: int, mode: Mode) -> None:
    for seed in batch(100):
        assert not scenario(seed, models, mode=mode).finished().home.unended, seed


@pytest.mark.parametrize("models", [2, 3])
def test_with_messages_lost_everything_still_ends_by_the_deadline_of_the_home(models: int) -> None:
    clusters = [scenario(seed, models, drop_p=0.03).finished() for seed in batch(300)]
    answers = [answer for cluster in clusters for answer in cluster.home.answers.values()]
    assert sum(cluster.network.dropped for cluster in clusters) > 50
    assert any(answer.is_given_up for answer in answers), "a lost hand-off was expected"


@pytest.mark.parametrize(
    ("seed", "models", "mode"),
    [
        (6, 2, Mode.DELAYED),  # two long prompts took each other's blocks for ever
        (213, 2, Mode.DELAYED),  # a repeated admission after an abort closed the request again
        (45, 1, Mode.DELAYED),
        (26, 2, Mode.MODEL_SYNC),  # an abort emptied a turn that had been granted
    ],
)
def test_what_once_failed_stays_repaired(seed: int, models: int, mode: Mode) -> None:
    assert not scenario(seed, models, mode=mode).finished().home.unended, seed


def test_the_seeds_visit_what_they_are_meant_to_visit() -> None:
    """A workload that never preempts proves nothing about preemption."""
    clusters = [scenario(seed).finished() for seed in range(40)]
    seen = visited(clusters)
    rare = {name: count for name, count in seen.items() if count < 5}
    assert not rare, rare


def visited(clusters: list[Cluster]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for cluster in clusters:
        for node in cluster.nodes:
            numbers = asdict(node.scheduler.counters)
            launches, _ = numbers.pop("launches"), numbers.pop("departures")
            seen.update({reason.value: count for reason, count in launches.items()})
            seen.update(numbers)
        closes = cluster.checkers.closes.values()
        seen["cancelled"] += sum(close.reason is Reason.CANCELLED for close in closes)
        seen["end tokens"] += sum(close.reason is Reason.STOP for close in closes)
        seen["late"] += cluster.network.late
        seen["told late"] += cluster.home.late_messages
    faults = ("forced_keeps", "nacks", "policy_faults", "unreadable_signals", "discarded_on_faults")
    for impossible in (*faults, "barrier", "threshold_changes"):
        assert not seen.pop(impossible, 0), impossible
    return seen


def test_a_failure_says_how_to_replay_it() -> None:
    found = scenario(3)
    twice = replace(found, requests=(*found.requests, found.requests[0]), arrivals=(*found.arrivals, 99.0))
    with pytest.raises(AssertionError, match=r"tools.simulate --replay 3 2 0.0 delayed.*used twice"):
        twice.finished()


def test_a_text_by_another_model_is_noticed() -> None:
    found = scenario(3)
    cluster = found.finished()
    other = replace(found.deployment, script=Script(vocab_size=98))
    with pytest.raises(AssertionError):
        replace(found, deployment=other).check_texts(cluster)


def digest(found: Scenario) -> str:
    return found.finished().trace.digest()


def test_a_seed_is_a_trace_also_in_another_process() -> None:
    here = [digest(scenario(seed, models)) for seed in range(8) for models in (2, 3)]
    code = (
        "from router_backend.simulation.scenario import scenario\n"
        "for seed in range(8):\n"
        "    for models in (2, 3):\n"
        "        print(scenario(seed, models).finished().trace.digest())\n"
    )
    for hash_seed in ("1", "4242"):
        there = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        )
        assert there.stdout.split() == here
    assert len(set(here)) == len(here)
