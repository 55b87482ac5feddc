"""What a hand-off carries, and how an incoming one is judged."""

from __future__ import annotations

import pytest

from router_backend.core.request import ModelIndex
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import Arrival, classify, handoff_to
from router_backend.handoff.message import Handoff
from tests.builders import request

SMALL, LARGE = ModelIndex(0), ModelIndex(1)


def sequence(tokens: list[int], seen: list[int]) -> Sequence:
    return Sequence(request(prompt=(1, 2)), SMALL, 1, tokens, seen)


def test_the_first_contact_carries_the_request_and_every_token():
    handoff = handoff_to(sequence([1, 2, 7], [3, 0]), LARGE)

    assert (handoff.base, handoff.token_ids, handoff.loc) == (0, (1, 2, 7), 3)
    assert handoff.request == request(prompt=(1, 2))
    assert handoff.seen == (3, 3)


def test_a_later_one_carries_only_what_the_peer_has_not_seen():
    handoff = handoff_to(sequence([1, 2, 7, 8, 9], [4, 3]), LARGE)

    assert (handoff.base, handoff.token_ids, handoff.request) == (3, (8, 9), None)


def test_a_discard_is_one_fewer_in_loc_and_one_more_attempt():
    sender = sequence([1, 2, 7], [2, 0])
    sender.attempt = 1
    handoff = handoff_to(sender, LARGE, drop=1)

    assert (handoff.loc, handoff.seen, handoff.attempt) == (2, (2, 2), 2)


def test_keeping_the_token_starts_a_new_position():
    sender = sequence([1, 2, 7], [2, 0])
    sender.attempt = 1

    assert handoff_to(sender, LARGE).attempt == 0


def test_the_ledger_of_a_third_model_travels_along():
    sender = Sequence(request(prompt=(1, 2)), SMALL, 1, [1, 2, 3, 4], [3, 0, 2])

    assert handoff_to(sender, ModelIndex(2)).token_ids == (3, 4)
    assert handoff_to(sender, ModelIndex(2)).seen == (4, 0, 4)


@pytest.mark.parametrize(
    ("seq", "base", "arrival"),
    [(3, 5, Arrival.NEXT), (3, 4, Arrival.NEXT), (2, 5, Arrival.DUPLICATE), (3, 6, Arrival.GAP)],
)
def test_an_arrival_is_next_a_duplicate_or_a_gap(seq, base, arrival):
    handoff = Handoff(request().request_id, 0, LARGE, SMALL, seq, base, (9,), (0, 0))

    assert classify(handoff, last_seq=2, held=5) is arrival


def test_a_hand_off_can_start_earlier_for_a_peer_that_lost_its_tokens():
    sent = handoff_to(sequence([1, 2, 7, 8], [4, 3]), LARGE)
    again = sent.starting_at(0, (1, 2, 7, 8), request(prompt=(1, 2)))

    assert (again.seq, again.loc, again.base) == (sent.seq, sent.loc, 0)
