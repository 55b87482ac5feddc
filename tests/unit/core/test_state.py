"""The state table: every entry, and everything that is not an entry."""

from __future__ import annotations

import itertools
from enum import Enum

import pytest

from router_backend.core.errors import LocalProtocolError
from router_backend.core.state import TRANSITIONS, Event, State, next_state


def test_a_request_can_be_handed_off_and_come_back():
    state = State.WAITING
    for event in (Event.SCHEDULED, Event.HANDED_OFF, Event.RETURNED, Event.SCHEDULED, Event.STOPPED):
        state = next_state(state, event)

    assert state is State.FINISHED


def test_nothing_happens_to_a_finished_sequence():
    assert not [event for state, event in TRANSITIONS if state is State.FINISHED]


@pytest.mark.parametrize("pair", list(itertools.product(State, Event)))
def test_an_event_outside_the_table_names_the_state_and_the_event(pair):
    if pair in TRANSITIONS:
        assert next_state(*pair) is TRANSITIONS[pair]
        return
    with pytest.raises(LocalProtocolError, match=f"a {pair[0].value} sequence cannot be {pair[1].value}"):
        next_state(*pair)


def test_every_state_can_reach_the_end():
    ends = {State.FINISHED}
    while True:
        more = {state for (state, _), after in TRANSITIONS.items() if after in ends} - ends
        if not more:
            break
        ends |= more

    assert ends == set(State)


@pytest.mark.parametrize("kind", [State, Event])
def test_looking_a_state_up_calls_no_python(kind: type[Enum]):
    assert all(type(member).__hash__ is object.__hash__ for member in kind)
