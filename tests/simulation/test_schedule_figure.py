"""The paper's schedule figure, to the number (arXiv:2610.12242, figure 3; shared planner notes, section 3).

Three requests at time 0, small step 1, large step 3.5: A = SSSSS, B = SLSLS, C = SSLSL, where symbol i
says which model writes token i.
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from router_backend.scheduler.batch import LaunchReason
from router_backend.scheduler.rounds import Mode
from router_backend.simulation.cluster import Cluster
from router_backend.simulation.schedule_figure import (
    SCHEDULE,
    figure_cluster,
    mean_latency,
    without_drain_rules,
)


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
    finished = figure_cluster(mode)
    finished.run()
    finished.check_end()
    assert latencies(finished) == tuple(map(Fraction, ends))
    assert mean_latency(finished) == mean
    assert all(
        "".join("SL"[token.model] for token in answer.tokens) == SCHEDULE[key.request_id]
        for key, answer in finished.home.answers.items()
    )


def test_the_timeline_of_delayed_batching() -> None:
    finished = figure_cluster(Mode.DELAYED)
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
    finished = figure_cluster(Mode.DELAYED, large_threshold=3)
    finished.run()
    finished.check_end()
    assert latencies(finished) == (5, 14, 13)
    assert mean_latency(finished) == Fraction(32, 3)
    assert [launch.reason for launch in finished.launches if launch.at == 5.0] == [LaunchReason.IDLE_RELEASE]


def test_without_such_a_rule_the_same_system_waits_for_ever_from_then_on() -> None:
    stuck = without_drain_rules(figure_cluster(Mode.DELAYED, large_threshold=3))
    stuck.run()
    assert (stuck.now, [key.request_id for key in stuck.home.unended]) == (5.0, ["B", "C"])
