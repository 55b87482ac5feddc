"""The leader's side of adaptive thresholds: when to solve what, and which table holds."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Observation
from router_backend.planner.adaptation import Adaptation, AdaptationSettings, unhurried
from router_backend.planner.controller import UNHURRIED, Cause
from router_backend.planner.sparse_plan import sparse_plan
from router_backend.planner.thresholds import Search, plan
from tests.unit.planner.systems import THREE_MODELS, constant_pair

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
PERIOD_S = 0.25


class Leader:
    """An adaptation that is told of the A100 pair and solves whatever is due."""

    def __init__(self) -> None:
        self.adaptation = Adaptation((64, 64), None, 0.0)
        self.now = 0.0
        self.solved: list[int] = []

    def serve(self, seconds: float, live: int, route_p: float) -> None:
        for _ in range(round(seconds / PERIOD_S)):
            self.now += PERIOD_S
            moved = round(200 * route_p)
            self.adaptation.observe(
                Observation(SMALL, live, (200 - moved, moved), 200 - moved, ((6, 33, 198.0),)), self.now
            )
            self.adaptation.observe(Observation(LARGE, live, (moved, 0), moved, ((6, 7, 195.3),)), self.now)
            count = self.adaptation.due(self.now)
            if count is not None:
                self.solved.append(count)
                self.adaptation.solve(count, self.now)

    @property
    def rows(self) -> tuple[tuple[int, ...], ...]:
        return self.adaptation.standing(self.now).table

    def row(self, live: int) -> tuple[int, ...]:
        return self.rows[min(live, len(self.rows)) - 1]


def test_the_present_count_is_solved_thrice_first_and_then_its_neighbours_and_seldom() -> None:
    leader = Leader()
    leader.serve(10.0, live=8, route_p=0.5)

    assert leader.solved[:3] == [8, 8, 8]
    assert set(leader.solved) == set(range(4, 13))
    assert len(leader.solved) < 16


def test_a_moved_probability_calls_for_the_present_count_at_once() -> None:
    leader = Leader()
    leader.serve(10.0, live=8, route_p=0.5)
    before = len(leader.solved)
    leader.serve(1.5, live=8, route_p=0.2)

    assert leader.solved[before:][:2] == [8, 8]
    assert leader.row(8)[1] < 5


def test_a_table_has_a_row_for_every_count_up_to_the_largest_and_none_is_above_the_model() -> None:
    leader = Leader()
    leader.serve(8.0, live=8, route_p=0.5)
    best = plan(constant_pair(0.5), 8).best.thresholds

    assert (len(leader.rows), leader.row(1)) == (64, (1, 1))
    assert (1, 3) < leader.row(8) <= best
    assert all(sum(row) - len(row) < live for live, row in enumerate(leader.rows, start=1))
    assert leader.adaptation.standing(leader.now).throughput == pytest.approx(
        next(
            one.throughput
            for one in plan(constant_pair(0.5), 8).predictions
            if one.thresholds == leader.row(8)
        ),
        rel=0.02,
    )


def test_a_changed_probability_puts_ones_in_force_before_any_new_solution() -> None:
    leader = Leader()
    leader.serve(8.0, live=8, route_p=0.5)
    before = leader.row(8)
    now = leader.now + PERIOD_S
    leader.adaptation.observe(Observation(SMALL, 8, (900, 100), 900, ((6, 150, 900.0),)), now)
    standing = leader.adaptation.standing(now)

    assert before[1] > 1
    assert (standing.cause, standing.table[7], standing.throughput) == (Cause.PLAN, (1, 1), 0.0)


def test_a_solution_that_is_too_old_is_used_no_more() -> None:
    leader = Leader()
    leader.serve(8.0, live=8, route_p=0.5)
    later, fresh_s = leader.adaptation.standing(leader.now + 2.9), leader.adaptation.settings.fresh_s
    for model, seen in ((SMALL, (100, 100)), (LARGE, (100, 0))):
        leader.adaptation.observe(
            Observation(model, 8, seen, 100, ((6, 33, 198.0),)), leader.now + fresh_s + 0.1
        )
    much_later = leader.adaptation.standing(leader.now + fresh_s + 0.1)

    assert later.table[7][1] > 1
    assert (much_later.cause, set(much_later.table)) == (Cause.PLAN, {(1, 1)})


def test_many_requests_are_planned_for_by_simulation() -> None:
    leader = Leader()
    leader.serve(2.0, live=64, route_p=0.5)

    assert leader.solved[:3] == [64, 64, 64]
    assert leader.row(64)[1] > 30
    assert leader.row(200) == leader.row(64)


def test_a_report_of_another_deployment_is_refused() -> None:
    with pytest.raises(ConfigError, match="report of model 2 for 2 models"):
        Leader().adaptation.observe(Observation(ModelIndex(2), 1, (1, 0), 1, ()), 1.0)


def test_a_slow_solver_has_its_solutions_used_for_longer() -> None:
    slow = unhurried(AdaptationSettings(), UNHURRIED)

    assert (slow.controller, slow.fresh_s) == (UNHURRIED, 1200.0)


@pytest.mark.parametrize("concurrency", [16, 48])
def test_a_sparse_plan_is_nearly_as_good_as_a_full_one(concurrency: int) -> None:
    system = constant_pair(0.5)
    sparse = sparse_plan(system, concurrency, Search())

    gain = sparse.chosen.throughput / sparse.eager.throughput - 1.0
    assert 0.10 < gain < 0.17
    assert len(sparse.predictions) <= 11


def test_a_sparse_plan_holds_the_minimum_of_any_two_of_its_candidates() -> None:
    candidates = {one.thresholds for one in sparse_plan(THREE_MODELS, 40, Search()).predictions}

    assert all(tuple(map(min, left, right)) in candidates for left in candidates for right in candidates)
