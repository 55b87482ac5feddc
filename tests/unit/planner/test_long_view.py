"""What reports add up to over minutes: shares, commits and step times."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Observation
from router_backend.planner.latency import StepLatency, constant, sloped
from router_backend.planner.long_view import HALF_LIFE_S, LongView, fitted
from router_backend.planner.routing import Routing
from router_backend.planner.system import System

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
SMALL_SEEN = Observation(SMALL, 8, (60, 40), 60, ((5, 20, 120.0),))
LARGE_SEEN = Observation(LARGE, 8, (40, 0), 40, ((4, 10, 300.0),))


def view_of(*seen: Observation, latencies: tuple[StepLatency, ...] | None = None) -> LongView:
    view = LongView((64, 8), latencies, 0.0)
    for one in seen:
        view.observe(one, 0.0)
    return view


def test_nothing_is_known_before_every_model_has_run() -> None:
    assert view_of().system() is None
    assert view_of(SMALL_SEEN).system() is None


def test_shares_commits_and_step_times_are_those_that_were_seen() -> None:
    routing = Routing(((0.6, 0.4), (1.0, 0.0)), ((1.0, 0.0), (1.0, 1.0)))

    assert view_of(SMALL_SEEN, LARGE_SEEN).system() == System(
        routing, (constant(6.0), constant(30.0)), (64, 8)
    )


def test_a_measured_profile_replaces_the_step_times_only() -> None:
    measured = (constant(5.0), sloped(20.0, 1.0))
    system = view_of(SMALL_SEEN, LARGE_SEEN, latencies=measured).system()

    assert system is not None
    assert (system.latencies, system.routing.probabilities[0]) == (measured, (0.6, 0.4))


def test_what_was_seen_long_ago_fades() -> None:
    view = view_of(SMALL_SEEN, LARGE_SEEN)
    view.observe(Observation(SMALL, 8, (0, 100), 0, ((5, 20, 120.0),)), HALF_LIFE_S)
    system = view.system()

    assert system is None, "ten steps of the large model have faded to five"
    view.observe(LARGE_SEEN, HALF_LIFE_S)
    faded = view.system()
    assert faded is not None
    assert faded.routing.probabilities[0] == pytest.approx((30 / 150, 120 / 150))


def test_traffic_of_two_kinds_that_never_meet_is_no_system() -> None:
    split = LongView((64, 64, 64), None, 0.0)
    split.observe(Observation(SMALL, 8, (0, 50, 50), 0, ((5, 20, 120.0),)), 0.0)
    split.observe(Observation(ModelIndex(1), 8, (0, 50, 0), 50, ((5, 10, 120.0),)), 0.0)
    split.observe(Observation(ModelIndex(2), 8, (0, 0, 50), 50, ((5, 10, 120.0),)), 0.0)

    with pytest.raises(ConfigError, match="separate groups of models"):
        split.system()


@pytest.mark.parametrize(
    ("steps", "first", "tenth"),
    [
        ({1: (10, 60.0), 3: (10, 80.0)}, 6.0, 15.0),
        ({4: (10, 70.0)}, 7.0, 7.0),
        ({4: (1000, 7000.0), 5: (1, 20.0)}, 7.01, 7.01),
        ({1: (10, 80.0), 3: (10, 60.0)}, 7.0, 7.0),
        ({8: (10, 10.0), 9: (10, 100.0)}, 0.55, 6.5),
    ],
)
def test_a_step_time_is_a_line_that_never_falls_and_starts_above_zero(
    steps: dict[int, tuple[float, float]], first: float, tenth: float
) -> None:
    latency = fitted(steps)

    assert latency.step_ms(1) == pytest.approx(first, rel=0.02)
    assert latency.step_ms(10) == pytest.approx(tenth, rel=0.02)
