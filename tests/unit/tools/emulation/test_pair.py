"""The emulated pair is the same for the planner and for the engines."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from python_backend.runner.script import load_script
from python_backend.runner.scripted_runner import are_uncertain
from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency, sloped
from router_backend.planner.profile import parse_profile, parse_routing
from router_backend.planner.thresholds import plan
from tools.emulation.pair import (
    PROFILE,
    SCRIPT,
    EmulatedPair,
    a100_pair,
    balanced_seeds,
    profiled_latencies,
)


def test_the_published_pair_has_the_published_prediction() -> None:
    assert plan(a100_pair().system(), 4).chosen.throughput == pytest.approx(207.9, abs=0.1)


def test_the_engines_play_what_the_planner_plans(tmp_path: Path) -> None:
    pair = EmulatedPair((sloped(6.0, 0.1), sloped(27.9, 0.4)), 0.35, 0.75)
    for name, document in pair.documents().items():
        (tmp_path / name).write_text(json.dumps(document))
    scripts = [load_script(tmp_path / SCRIPT, model) for model in (0, 1)]

    assert tuple(script.curve for script in scripts) == pair.system().latencies
    assert [script.uncertain_p for script in scripts] == [0.35, 0.25]
    assert parse_routing(pair.documents()[SCRIPT]).probabilities == pair.system().routing.probabilities


def test_a_measured_profile_can_be_emulated(tmp_path: Path) -> None:
    steps = [[{"batch": 1, "step_ms": 3.0}], [{"batch": 1, "step_ms": 9.0}, {"batch": 4, "step_ms": 12.0}]]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"models": [{"steps": points} for points in steps]}))
    latencies = profiled_latencies(path)

    assert latencies == (StepLatency(((1, 3.0),)), StepLatency(((1, 9.0), (4, 12.0))))
    assert len(parse_profile(EmulatedPair(latencies, 0.2).documents()[PROFILE])) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory"),
        ("{", "not JSON"),
        ('{"models": [{"steps": [{"batch": 1, "step_ms": 3}]}]}', "1 models, a pair is two"),
    ],
)
def test_a_profile_that_is_none_of_a_pair_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError, match=f"profile.json: {message}"):
        profiled_latencies(path)


def test_balanced_seeds_leave_exactly_as_often_as_expected() -> None:
    seeds = list(itertools.islice(balanced_seeds(a100_pair(), 5, 60), 20))
    leaving = [int(are_uncertain(np.full(60, seed), np.arange(5, 65), 0, 0.35).sum()) for seed in seeds]

    assert leaving == [21] * 20
    assert len(set(seeds)) == 20


def test_where_steps_depend_on_each_other_every_seed_will_do() -> None:
    pair = EmulatedPair(a100_pair().latencies, 0.35, return_p=0.5)

    assert list(itertools.islice(balanced_seeds(pair, 5, 60), 3)) == [0, 1, 2]
