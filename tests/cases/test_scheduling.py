"""Field cases of scheduling and KV: two real schedulers, every message delivered, outputs by hand."""

from __future__ import annotations

from collections import Counter

import pytest

from router_backend.core.effects import Effect, Reason
from router_backend.core.request import PolicySpec, RequestId
from router_backend.handoff.message import Abort, Handoff
from router_backend.scheduler.batch import Hold
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import ALWAYS, NEVER, closes, handoffs, output, plan, request, scheduler

AT_LARGE = PolicySpec("fixed", (("entry", "large"), ("mode", "never")))


def run(chosen: Scheduler, now: float = 0.0) -> list[Effect]:
    """One step in which every row samples token 7; nothing when nothing is ready."""
    planned = chosen.plan(now)
    if isinstance(planned, Hold):
        return []
    return chosen.apply(planned, output(*[7] * len(planned.sampling_rows)), now)


def parked(small: Scheduler, names: range) -> list[Handoff]:
    """Requests that the small model has handed to the large one."""
    for number in names:
        small.admit(request(f"r{number}", policy=ALWAYS), 0.0)
    sent: list[Handoff] = []
    while len(sent) < len(names):
        sent += handoffs(run(small))
    return sent


def free_or_cached(chosen: Scheduler) -> int:
    chosen.check_integrity()
    return chosen.roster.kv.pool.num_free + chosen.roster.kv.pool.num_cached


@pytest.mark.case("F12")
def test_what_can_never_fit_the_large_model_alone_ends_with_the_arithmetic_and_the_next_is_served():
    small, large = scheduler(0, num_blocks=64), scheduler(1, num_blocks=3)
    small.admit(request("big", prompt=range(1, 9), max_tokens=8, policy=ALWAYS), 0.0)
    (there,) = handoffs(run(small))
    (close,) = closes(large.resume(there, 0.0))
    assert (close.request_id, close.reason) == ("big", Reason.ERROR)
    assert "prompt (8) + max_tokens (8) = 16 tokens can never fit model 1 (at most 12)" in close.message
    assert large.plan(0.0) == Hold()

    small.admit(request("fits", prompt=(1, 2), max_tokens=1, policy=ALWAYS), 0.0)
    (there,) = handoffs(run(small))
    large.resume(there, 0.0)
    assert [(end.request_id, end.reason) for end in closes(run(large))] == [("fits", Reason.LENGTH)]


@pytest.mark.case("F35")
def test_ten_thousand_cancels_of_parked_requests_close_once_and_leave_every_block_free():
    small, large = scheduler(0), scheduler(1)
    total = free_or_cached(small)
    ended: Counter[RequestId] = Counter()
    for number in range(10_000):
        (there,) = parked(small, range(number, number + 1))
        abort = Abort(there.request_id, 0)
        effects = [] if number % 3 == 0 else large.on(there, 0.0)
        late = handoffs(run(large)) if number % 3 == 1 else []
        effects += small.on(abort, 0.0) + large.on(abort, 0.0)
        effects += [effect for back in late for effect in small.on(back, 0.0)]
        effects += large.on(there, 0.0) if number % 3 == 0 else []
        ended[there.request_id] += len(closes(effects))
    assert set(ended.values()) == {1}
    assert free_or_cached(small) == total == free_or_cached(large)
    assert (len(small.roster.queues), len(large.roster.queues)) == (0, 0)


@pytest.mark.case("F37")
def test_a_storm_of_aborts_frees_both_models_at_once_and_new_requests_run_as_before():
    small, large = scheduler(0, num_blocks=800), scheduler(1, num_blocks=800, batch_tokens_max=800)
    totals = free_or_cached(small), free_or_cached(large)
    for there in parked(small, range(200)):
        large.resume(there, 0.0)
    late = handoffs(run(large))
    assert (small.gauges()["parked"], len(late)) == (200, 8)

    aborts = [Abort(RequestId(f"r{number}"), 0) for number in range(200)]
    effects = [effect for abort in aborts for chosen in (small, large) for effect in chosen.on(abort, 0.0)]
    effects += [effect for back in late for effect in small.on(back, 0.0)]

    assert Counter(close.request_id for close in closes(effects)) == Counter(
        abort.request_id for abort in aborts
    )
    assert (free_or_cached(small), free_or_cached(large)) == totals
    assert (len(small.roster.live), len(large.roster.live)) == (0, 0)
    small.admit(request("next", max_tokens=1), 0.0)
    assert [close.reason for close in closes(run(small))] == [Reason.LENGTH]


def steps_for(chosen: Scheduler, name: str, count: int, max_tokens: int) -> int:
    """How many steps `count` requests take from admission to their end."""
    for number in range(count):
        prompt = (number % 90 + 1, *range(1, 12))
        chosen.admit(request(f"{name}{number}", prompt=prompt, max_tokens=max_tokens, policy=NEVER), 0.0)
    open_requests, steps = count, 0
    while open_requests:
        open_requests -= len(closes(run(chosen)))
        steps += 1
        assert steps < 10_000, "stuck"
    return steps


@pytest.mark.case("F43")
def test_after_a_full_pool_has_drained_steps_are_as_full_as_before():
    chosen = scheduler(num_blocks=24, batch_max=8, batch_tokens_max=96)
    before = steps_for(chosen, "before", 4, 8)
    steps_for(chosen, "flood", 60, 24)
    assert chosen.counters.preemptions > 0, "the pool was meant to overflow"
    assert steps_for(chosen, "after", 4, 8) <= before
    chosen.check_integrity()


@pytest.mark.case("F44")
def test_a_long_context_that_is_handed_over_comes_in_chunks_and_every_other_row_runs_in_every_step():
    small, large = scheduler(0), scheduler(1, batch_max=16, batch_tokens_max=24)
    others = {f"old{number}" for number in range(8)}
    for name in sorted(others):
        large.admit(request(name, prompt=(ord(name[-1]),), max_tokens=40, policy=AT_LARGE), 0.0)
    run(large)
    small.admit(request("long", prompt=range(1, 62), policy=ALWAYS), 0.0)
    (there,) = handoffs(run(small))
    large.resume(there, 0.0)

    chunks = []
    while sum(chunks) < 61:
        step = plan(large)
        fed = {row.request_id: len(row.token_ids) for row in step.rows}
        assert others < fed.keys()
        chunks.append(fed["long"])
        large.apply(step, output(*[7] * len(step.sampling_rows)), 0.0)
    assert chunks == [16, 16, 16, 13]


@pytest.mark.case("F52")
def test_a_request_that_waits_for_a_full_batch_starts_as_soon_as_a_place_is_free():
    chosen = scheduler(batch_max=2)
    for name, length in (("a", 1), ("b", 9), ("c", 9)):
        chosen.admit(request(name, prompt=(ord(name[-1]) % 90,), max_tokens=length), 0.0)
    first = plan(chosen)
    chosen.apply(first, output(7, 7), 0.0)
    second = plan(chosen)
    assert [row.request_id for row in first.rows] == ["a", "b"]
    assert {row.request_id for row in second.rows} == {"b", "c"}
