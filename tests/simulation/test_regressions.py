"""What the simulation found in the scheduler, each as small as it goes."""

from __future__ import annotations

import math

from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff.message import Abort, Admit, Admitted, Go, Report
from router_backend.scheduler.batch import BatchPlan
from router_backend.scheduler.rounds import Mode
from tests.builders import closes, key, output, plan, request, scheduler


def test_two_long_prompts_in_a_pool_for_one_take_turns_instead_of_each_others_blocks():
    """A prompt in the middle of its chunks went behind the other one, which then evicted it, for ever."""
    chosen = scheduler(num_blocks=3, block_size=4, length_max=12, batch_max=1, batch_tokens_max=4)
    for name in ("a", "b"):
        chosen.admit(request(name, [ord(name)] * 11, max_tokens=1), 0.0)

    ended = []
    for _ in range(6):
        step = plan(chosen)
        ended += closes(chosen.apply(step, output(*[5] * len(step.sampling_rows)), 0.0))

    assert [close.request_id for close in ended] == ["a", "b"]
    assert chosen.counters.preemptions == 0


def test_a_chunk_keeps_its_place_and_the_time_since_when_it_waits():
    chosen = scheduler(batch_max=1, batch_tokens_max=5)
    chosen.admit(request("long", range(1, 13)), 1.0)
    chosen.admit(request("short"), 2.0)

    chosen.apply(plan(chosen), output(), 2.5)

    queues = chosen.roster.queues
    assert (list(queues.ready), queues.oldest_at) == ([key("long"), key("short")], 1.0)


def test_an_admission_that_arrives_again_after_the_abort_closes_nothing_again():
    chosen = scheduler()
    admission = Admit(request("r"))

    first = [*chosen.on(admission, 0.0), *chosen.on(Abort(RequestId("r"), 0), 0.0)]

    assert len(closes(first)) == 1
    assert chosen.on(admission, 0.0) == []


def test_a_turn_that_an_abort_empties_is_reported_so_that_the_round_goes_on():
    chosen = scheduler(model=1, mode=Mode.MODEL_SYNC)
    chosen.admit(request("r"), 0.0)
    chosen.on(Go(ModelIndex(0)), 0.0)

    effects = chosen.abort(RequestId("r"))

    reports = [effect.message for effect in effects if isinstance(getattr(effect, "message", None), Report)]
    assert reports == [Report(ModelIndex(1), 0, (0, 0), is_step_over=True)]


def test_what_a_lost_model_had_announced_no_longer_counts_as_live():
    chosen = scheduler(thresholds=(3, 1), deadline_s=math.inf)
    for name in ("x", "y", "z"):
        chosen.on(Admitted(RequestId(name), 0, ModelIndex(1)), 0.0)
    chosen.admit(request("r"), 0.0)
    assert not isinstance(chosen.plan(0.0), BatchPlan)

    chosen.lose_peer(ModelIndex(1))

    assert list(chosen.roster.live) == [key()]
    assert isinstance(chosen.plan(0.0), BatchPlan)
