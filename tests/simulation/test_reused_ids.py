"""A client may use an id again while others still speak of its former request: nobody mixes the two up."""

from __future__ import annotations

from itertools import combinations

import pytest

from router_backend.core.request import RequestKey
from router_backend.core.sequence import Sequence
from router_backend.core.state import State
from router_backend.scheduler.queues import Graveyard, Queues, Tombstone
from router_backend.scheduler.rounds import Mode
from router_backend.simulation.cluster import Cluster
from router_backend.simulation.scenario import Scenario, has_reused_ids, mortal_scenario, scenario
from router_backend.stream.lives import PeerLoss

SEEDS = [seed for seed in range(400, 460) if has_reused_ids(seed)]


@pytest.mark.parametrize("models", [2, 3])
@pytest.mark.parametrize("drop_p", [0.0, 0.03])
def test_requests_of_one_id_keep_every_promise_each_by_itself(models: int, drop_p: float) -> None:
    for seed in SEEDS:
        assert not scenario(seed, models, drop_p).finished().home.unended, seed


@pytest.mark.parametrize("mode", [Mode.EAGER_ASYNC, Mode.STEP_SYNC])
def test_also_in_the_other_modes(mode: Mode) -> None:
    for seed in SEEDS:
        assert not scenario(seed, mode=mode).finished().home.unended, seed


@pytest.mark.parametrize("choice", PeerLoss)
def test_also_where_models_die_and_requests_take_several_lives(choice: PeerLoss) -> None:
    for seed in SEEDS:
        assert not mortal_scenario(seed, 2, 0.03 * (seed % 2), choice).finished().home.unended, seed


def test_the_seeds_use_ids_again_while_their_former_request_is_still_spoken_of() -> None:
    clusters = [scenario(seed).finished() for seed in SEEDS]
    assert sum(map(overlaps, clusters)) > 100
    assert sum(at_the_abort(scenario(seed)) for seed in SEEDS) > 5, "a request at the moment of an abort"


def overlaps(cluster: Cluster) -> int:
    """Pairs of requests of one id of which the second came before the first had ended at its home."""
    answers = sorted(cluster.home.answers.values(), key=lambda answer: answer.opened_at)
    return sum(
        first.request.request_id == second.request.request_id and second.opened_at <= (first.ended_at or 0.0)
        for first, second in combinations(answers, 2)
    )


def at_the_abort(found: Scenario) -> int:
    ids = [request.request_id for request in found.requests]
    left = {(ids[index], at) for index, at in found.cancels}
    return sum((name, at) in left for name, at in zip(ids, found.arrivals, strict=True))


def test_queues_that_look_at_the_id_alone_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(queues: Queues, key: RequestKey) -> Sequence | None:
        alike = (one for one in queues if one.request_id == key.request_id)
        return next((one for one in alike if one.state is not State.FINISHED), None)

    monkeypatch.setattr(Queues, "find", find)
    with pytest.raises(AssertionError, match=r"tools.simulate --replay"):
        test_requests_of_one_id_keep_every_promise_each_by_itself(2, 0.0)


def test_so_is_a_graveyard_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    bury, find = Graveyard.bury, Graveyard.find

    def bury_id(graveyard: Graveyard, key: RequestKey, stone: Tombstone) -> None:
        bury(graveyard, RequestKey(key.request_id, 0), stone)

    def find_id(graveyard: Graveyard, key: RequestKey) -> Tombstone | None:
        return find(graveyard, RequestKey(key.request_id, 0))

    monkeypatch.setattr(Graveyard, "bury", bury_id)
    monkeypatch.setattr(Graveyard, "find", find_id)
    with pytest.raises(AssertionError, match=r"tools.simulate --replay"):
        test_requests_of_one_id_keep_every_promise_each_by_itself(2, 0.0)
