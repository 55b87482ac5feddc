"""A long text comes in chunks, and nobody who decodes waits for more than two of them."""

from __future__ import annotations

import pytest

from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff.message import Handoff
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import emitted, output, plan, request, scheduler

LONG, CHUNK = 8192, 512
TEXT = [place * place % 89 for place in range(LONG)]
DECODING = [f"d{index}" for index in range(6)]


def busy_model() -> Scheduler:
    chosen = scheduler(num_blocks=4096, block_size=16, length_max=65536, batch_max=16, batch_tokens_max=CHUNK)
    for index, name in enumerate(DECODING):
        chosen.admit(request(name, (index,), max_tokens=60), 0.0)
    run(chosen)
    return chosen


def run(chosen: Scheduler) -> tuple[dict[str, int], list[str]]:
    """One step: tokens fed by request, and who committed a token."""
    planned = plan(chosen)
    effects = chosen.apply(planned, output(*[7] * len(planned.sampling_rows)), 0.0)
    assert len(emitted(effects)) == len(planned.sampling_rows)
    fed = {str(row.request_id): len(row.token_ids) for row in planned.rows}
    return fed, [str(row.request_id) for row in planned.sampling_rows]


def first_visit() -> Handoff:
    """A peer hands over 8,192 tokens that this model has never seen."""
    asked = request("long", TEXT, max_tokens=8)
    loc = (LONG, LONG)
    return Handoff(RequestId("long"), 0, ModelIndex(1), ModelIndex(0), 0, 0, asked.prompt, loc, request=asked)


@pytest.mark.parametrize("is_first_visit", [True, False], ids=["first visit", "prompt"])
def test_rows_that_decode_are_in_every_step_beside_a_long_text(is_first_visit: bool) -> None:
    chosen = busy_model()
    if is_first_visit:
        chosen.resume(first_visit(), 0.0)
    else:
        chosen.admit(request("long", TEXT, max_tokens=8), 0.0)
    steps = []
    while not steps or "long" not in steps[-1][1]:
        steps.append(run(chosen))

    assert len(steps) == -(-LONG // (CHUNK - len(DECODING)))
    for fed, committed in steps:
        assert sum(fed.values()) <= CHUNK
        assert set(DECODING) <= set(committed)


def test_who_arrives_while_a_chunk_runs_has_its_token_after_the_next_one() -> None:
    chosen = busy_model()
    chosen.resume(first_visit(), 0.0)
    for number in range(8):
        planned = plan(chosen)
        name = f"new{number}"
        chosen.admit(request(name, (50 + number,), max_tokens=60), 0.0)
        chosen.apply(planned, output(*[7] * len(planned.sampling_rows)), 0.0)

        assert name in run(chosen)[1]


def test_two_long_texts_share_the_budget_and_hold_up_nobody() -> None:
    chosen = busy_model()
    chosen.resume(first_visit(), 0.0)
    chosen.admit(request("other", TEXT[::-1], max_tokens=8), 0.0)
    for _ in range(20):
        fed, committed = run(chosen)
        assert sum(fed.values()) <= CHUNK
        assert set(DECODING) <= set(committed)
