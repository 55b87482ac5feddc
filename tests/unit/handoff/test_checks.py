"""A message whose numbers make no sense is refused before anything happens."""

from __future__ import annotations

import math

import pytest

from router_backend.core.effects import TokenLogprobs
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff.checks import COUNT_MAX, MessageBounds
from router_backend.handoff.message import Admit, Admitted, Handoff, Nack, Report, Thresholds
from router_backend.scheduler.rounds import Mode
from tests.builders import ALWAYS, VOCAB, handoffs, request, scheduler, step

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
BOUNDS = MessageBounds(LARGE, 2, VOCAB)
FIRST = Handoff(RequestId("r"), 0, SMALL, LARGE, 0, 0, (1, 2, 3), (3, 3), 1, 1, request())


def test_a_hand_off_of_the_same_deployment_passes():
    BOUNDS.check_handoff(FIRST)
    BOUNDS.check_continuation(FIRST, request(), 0)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"source": ModelIndex(2)}, "from model 2 of 2"),
        ({"source": ModelIndex(-1)}, "from model -1 of 2"),
        ({"source": LARGE}, "a hand-off from model 1 to 1"),
        ({"target": SMALL}, "a hand-off from model 0 to 0"),
        ({"seq": -1}, "counts"),
        ({"base": -1}, "counts"),
        ({"raw_steps": COUNT_MAX + 1}, "counts"),
        ({"seen": (3,)}, r"up to 3 after which models hold \(3,\)"),
        ({"seen": (3, 2)}, "after which models hold"),
        ({"seen": (-1, 3)}, "after which models hold"),
        ({"seen": (4, 3)}, "after which models hold"),
        ({"token_ids": (1, VOCAB, 3)}, "tokens 1..100, the vocabulary ends at 100"),
        ({"token_ids": (1, -2, 3)}, "tokens -2..3"),
        ({"request": request(prompt=())}, "without a prompt"),
        ({"request": request(prompt=(1, 2, 4))}, "whose tokens are not its request's prompt"),
        ({"base": 1, "seen": (4, 4)}, "a hand-off from 1 whose tokens are not"),
        ({"request": request(max_tokens=0)}, "max_tokens is 0"),
        ({"request": request("other")}, "with the request"),
        ({"epoch": 1}, "with the request"),
        ({"provisional": -1}, "-1 of 3 tokens as a draft"),
        ({"provisional": 4}, "4 of 3 tokens as a draft"),
        ({"logprobs": (TokenLogprobs(0.0),)}, "1 logprobs of 0 tokens"),
    ],
)
def test_a_hand_off_that_cannot_be_is_refused(changes, complaint):
    with pytest.raises(RemoteProtocolError, match=complaint):
        BOUNDS.check_handoff(FIRST.replaced(**changes))


@pytest.mark.parametrize(
    ("changes", "held", "complaint"),
    [
        ({"epoch": 1}, 0, "life 1 of a request in life 0"),
        ({}, 4, "up to 3, which must be 4..11"),
        ({"token_ids": (1, 2)}, 0, "up to 2, which must be 3..11"),
        ({"token_ids": (1,) * 12}, 0, "up to 12, which must be 3..11"),
        ({"provisional": 1}, 0, "up to 3, which must be 3..11"),
    ],
)
def test_a_hand_off_goes_on_where_the_request_is_and_takes_nothing_back(changes, held, complaint):
    with pytest.raises(RemoteProtocolError, match=complaint):
        BOUNDS.check_continuation(FIRST.replaced(**changes), request(), held)


def test_a_scheduler_refuses_them_and_goes_on_as_if_nothing_had_come():
    small, large = scheduler(0), scheduler(1)
    small.admit(request(policy=ALWAYS), 0.0)
    (there,) = handoffs(step(small, 40))
    for wrong in (
        there.replaced(token_ids=(1, VOCAB, 3)),
        Admit(request("x", prompt=(VOCAB,))),
        Admitted(RequestId("x"), 0, ModelIndex(9)),
    ):
        with pytest.raises(RemoteProtocolError):
            large.on(wrong, 0.0)
    assert (len(large.roster.queues), dict(large.roster.live)) == (0, {})
    large.check_integrity()
    large.on(there, 0.0)
    assert large.counters.handoffs_received == 1


def test_a_nack_from_where_nothing_was_sent_is_stale():
    small = scheduler(0)
    small.admit(request(policy=ALWAYS), 0.0)
    (there,) = handoffs(step(small, 40))
    assert small.on(Nack(there.request_id, 0, LARGE, there.seq, -1), 0.0) == []
    assert small.on(Nack(there.request_id, 0, LARGE, there.seq, there.loc + 1), 0.0) == []


@pytest.mark.parametrize("report", [Report(ModelIndex(7), 1), Report(LARGE, 1, (0, 0, 1))])
def test_a_leader_refuses_a_report_on_models_that_are_not_there(report):
    with pytest.raises(RemoteProtocolError):
        scheduler(0, mode=Mode.STEP_SYNC).on(report, 0.0)


@pytest.mark.parametrize("lasts_s", [math.nan, math.inf, -1.0])
def test_thresholds_without_an_end_are_refused_and_change_nothing(lasts_s):
    chosen = scheduler(1)
    before = chosen.gate.table
    with pytest.raises(RemoteProtocolError, match="thresholds that last"):
        chosen.on(Thresholds(SMALL, ((1, 2),), lasts_s), 0.0)
    assert chosen.gate.table == before
