"""Whose KV goes when a pool is too small, and that work does not go in circles."""

from __future__ import annotations

import pytest

from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, Sampling
from router_backend.handoff.message import Handoff
from router_backend.scheduler.counters import Counters
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.cluster import Cluster, Deployment
from tests.builders import ALWAYS, NEVER, closes, handoffs, key, output, plan, request, scheduler, step

EVERY_SIXTH = PolicySpec("fixed", (("mode", "every"), ("k", 6)))
STITCH = PolicySpec("r_stitch", (("cutoff", 0.625),))
PROMPT, ANSWER = 20, 28


def row_ids(chosen):
    return [row.request_id for row in plan(chosen).rows]


def test_the_youngest_gives_its_cache_and_waits_until_the_others_leave_room():
    chosen = scheduler(num_blocks=4, length_max=16)
    for name in ("old", "young"):
        chosen.admit(request(name, max_tokens=10), 0.0)
    for _ in range(6):
        step(chosen, 40, 41)
    ended = []
    for _ in range(4):
        assert row_ids_of_next_step(chosen, ended) == ["old"]

    assert [close.request_id for close in ended] == ["old"]
    assert row_ids(chosen) == ["young"]
    assert (chosen.counters.preemptions, chosen.counters.recomputed_tokens) == (1, 8)


def row_ids_of_next_step(chosen, ended):
    planned = plan(chosen)
    ended += closes(chosen.apply(planned, output(*[40] * len(planned.sampling_rows)), 0.0))
    return [row.request_id for row in planned.rows]


def test_who_has_come_later_never_takes_from_who_came_first():
    chosen = scheduler(num_blocks=5, length_max=20)
    chosen.admit(request("old", range(7)), 0.0)
    chosen.admit(request("young", range(20, 27)), 0.0)
    for _ in range(2):
        step(chosen, 40, 41)
    young = chosen.roster.queues.ready.pop(key("young"))
    chosen.roster.queues.put_back([young])

    assert row_ids(chosen) == ["young"]  # takes the last block
    chosen.check_integrity()


def test_one_that_finds_no_room_does_not_hold_up_those_that_have_theirs():
    chosen = scheduler(num_blocks=6, length_max=24)
    chosen.admit(request("runs", range(3)), 0.0)
    step(chosen, 40)
    chosen.admit(request("waits", range(30, 50), max_tokens=4), 0.0)
    chosen.admit(request("short", (60, 61)), 0.0)

    assert row_ids(chosen) == ["runs"]  # nor does a short one slip in before the one that waits


def test_parked_sequences_hold_no_more_than_their_share():
    chosen = scheduler(num_blocks=8, parked_kv_max=0.5)
    for index, length in enumerate((6, 10, 3)):
        chosen.admit(request(f"r{index}", range(20 * index, 20 * index + length), policy=ALWAYS), 0.0)
    step(chosen, 40, 41, 42)

    held = {name: len(parked.blocks) for (name, _), parked in chosen.roster.queues.parked.items()}
    assert held == {"r0": 0, "r1": 3, "r2": 1}  # r2 came last: 3 + 1 blocks are no more than 4
    assert chosen.counters.parked_evictions == 1


def test_blocks_that_parked_sequences_share_count_once():
    chosen = scheduler(num_blocks=16, parked_kv_max=0.25)
    chosen.admit(request("first", range(9)), 0.0)
    step(chosen, 40)
    for index in range(3):
        chosen.admit(request(f"r{index}", range(9), policy=ALWAYS), 0.0)
    step(chosen, 41, 42, 43, 44)

    assert chosen.counters.parked_evictions == 1  # 2 shared blocks and 3 of their own are one too many
    chosen.check_integrity()


def test_a_share_is_from_nothing_to_all():
    assert scheduler(num_blocks=64, parked_kv_max=0.25).settings.parked_blocks_max == 16
    with pytest.raises(ConfigError, match=r"parked_kv_max: 1.5 must be from 0 to 1"):
        scheduler(parked_kv_max=1.5)


def test_a_pool_full_of_parked_sequences_is_opened_for_the_oldest_that_is_ready():
    chosen = scheduler(num_blocks=4, length_max=16, parked_kv_max=1.0)
    for name, first, length in (("a", 0, 10), ("b", 20, 7)):
        chosen.admit(request(name, range(first, first + length), policy=ALWAYS, max_tokens=4), 0.0)
    sent = [*handoffs(step(chosen, 40)), *handoffs(step(chosen, 41))]
    assert [handoff.request_id for handoff in sent] == ["a", "b"]
    parked = chosen.roster.queues.parked
    chosen.roster.kv.release(parked[key("b")])
    loc = sent[1].loc
    back = Handoff(RequestId("b"), 0, ModelIndex(1), ModelIndex(0), 1, loc, (50,), (loc + 1, loc + 1))
    chosen.resume(back, 0.0)

    assert row_ids(chosen) == ["b"]
    assert chosen.counters.kv_stalls == 1 and not parked[key("a")].blocks
    chosen.check_integrity()


def cluster(policy: PolicySpec, num_blocks: int) -> Cluster:
    """16 requests of up to 48 tokens, 12 blocks each, on two models with such pools."""
    settings = [
        SchedulerSettings(ModelIndex(model), (1, 1), num_blocks, 4, PROMPT + ANSWER, 16, 64, 4.0)
        for model in range(2)
    ]
    made = Cluster(Deployment(tuple(settings), ((1.0,), (3.5,))))
    for index in range(16):
        prompt = tuple((7 * place + 3 * index + 1) % 90 for place in range(PROMPT))
        name = RequestId(f"r{index}")
        asked = Request(name, prompt, ANSWER, sampling=Sampling(seed=index), policy=policy)
        made.submit(asked, at=index / 4)
    made.run()
    made.check_end()
    return made


def counters(policy: PolicySpec, num_blocks: int) -> list[Counters]:
    return [node.scheduler.counters for node in cluster(policy, num_blocks).nodes]


@pytest.mark.parametrize("num_blocks", [12, 24, 48, 96])
def test_a_pool_smaller_than_those_who_are_ready_does_not_thrash(num_blocks: int) -> None:
    """Each of 16 requests computes its 20 + 28 tokens once; twice as much in all would be circles."""
    only, _ = counters(NEVER, num_blocks)

    assert only.committed == 16 * ANSWER
    assert only.recomputed_tokens < 16 * (PROMPT + ANSWER)
    assert only.preemptions <= 2 * 16


@pytest.mark.parametrize("num_blocks", [48, 96])
@pytest.mark.parametrize("policy", [EVERY_SIXTH, STITCH], ids=["every sixth", "stitch"])
def test_nor_do_two_pools_whose_requests_move(policy: PolicySpec, num_blocks: int) -> None:
    for one in counters(policy, num_blocks):
        assert one.preemptions <= 2 * 16
        assert one.recomputed_tokens < 16 * (PROMPT + ANSWER) * 2


@pytest.mark.parametrize("policy", [EVERY_SIXTH, STITCH, ALWAYS], ids=["every sixth", "stitch", "always"])
def test_two_pools_that_hold_one_request_each_never_wait_for_each_other(policy: PolicySpec) -> None:
    """All blocks of the small one parked for the large one, and the reverse: `check_end` finds all ended."""
    answers = cluster(policy, 12).home.answers.values()

    assert [len(answer.tokens) for answer in answers] == [ANSWER] * 16
