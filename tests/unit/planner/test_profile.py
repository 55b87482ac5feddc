"""The profile and matrix files: what they hold, and how a mistake in them is named."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.planner.latency import StepLatency, constant
from router_backend.planner.profile import ModelProfile, parse_profile, parse_routing, profiled_system
from router_backend.planner.routing import discard_and_return, mixture
from router_backend.planner.system import UNCAPPED, System

SMALL = {
    "name": "small",
    "batch_max": 64,
    "steps": [{"batch": 1, "step_ms": 6.0}, {"batch": 8, "step_ms": 7}],
}
LARGE = {"name": "large", "steps": [{"batch": 1, "step_ms": 27.9}]}


def test_a_profile_becomes_one_latency_and_cap_per_model() -> None:
    seen = parse_profile({"machine": "A100", "models": [SMALL, LARGE]})

    assert seen == (
        ModelProfile("small", StepLatency(((1, 6.0), (8, 7.0))), 64),
        ModelProfile("large", constant(27.9), UNCAPPED),
    )


def test_a_profile_and_a_routing_make_a_system() -> None:
    profiles = parse_profile({"models": [SMALL, LARGE]})

    system = profiled_system(profiles, discard_and_return(0.35))

    latencies = (StepLatency(((1, 6.0), (8, 7.0))), constant(27.9))
    assert system == System(discard_and_return(0.35), latencies, (64, UNCAPPED))
    assert system.caps(100) == (64, 100)


def test_a_routing_for_another_number_of_models_is_refused() -> None:
    with pytest.raises(ConfigError, match="models: the routing has 3, the profile 1"):
        profiled_system(parse_profile({"models": [SMALL]}), mixture((0.5, 0.3, 0.2)))


def test_matrices_are_read_as_they_are_and_commits_default_to_keeping_all() -> None:
    document = {"routing": [[0.65, 0.35], [1, 0]], "commits": [[1, 0], [1, 0]]}

    assert parse_routing(document) == discard_and_return(0.35)
    assert parse_routing({"routing": [[0.5, 0.5], [0.5, 0.5]]}) == mixture((0.5, 0.5))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "document: an object is expected"),
        ({}, "models: missing"),
        ({"models": 3}, "models: a list is expected"),
        ({"models": ["small"]}, r"models\[0\]: an object is expected"),
        ({"models": [{"name": "small"}]}, r"models\[0\].steps: missing"),
        ({"models": [{"steps": []}]}, r"models\[0\].steps: at least one measured batch size"),
        ({"models": [{"steps": [{"batch": 1}]}]}, r"models\[0\].steps\[0\].step_ms: missing"),
        ({"models": [{"steps": [{"batch": 1.5, "step_ms": 6}]}]}, r"steps\[0\].batch: a whole number"),
        (
            {"models": [{"steps": [{"batch": 1, "step_ms": "6"}]}]},
            r"steps\[0\].step_ms: a number is expected",
        ),
        ({"models": [LARGE | {"batch_max": 0}]}, r"models\[0\].batch_max: a whole number of at least 1"),
    ],
)
def test_a_mistake_in_a_profile_is_named_by_its_path(document: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_profile(document)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"commits": []}, "routing: missing"),
        ({"routing": [1, 0]}, r"routing\[0\]: a list is expected"),
        ({"routing": [[1.0, True], [1, 0]]}, r"routing\[0\]\[1\]: a number is expected, got True"),
        ({"routing": [[1.0]], "commits": 1}, "commits: a list is expected"),
    ],
)
def test_a_mistake_in_a_matrix_is_named_by_its_path(document: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_routing(document)
