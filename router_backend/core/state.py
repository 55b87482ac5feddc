"""The life of a sequence on one model, as one table.

The README's and the architecture page's diagrams are drawn from it (`python -m tools.draw_states`).
Where the KV lives is data, not a state: a parked sequence may or may not still hold blocks.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from router_backend.core.errors import LocalProtocolError


class _Member(Enum):
    """Members are singletons. Enum's own hash is Python code, and every row of every step asks for two."""

    __hash__ = object.__hash__


class State(_Member):
    WAITING = "waiting"
    RUNNING = "running"
    PENDING_RETURN = "pending_return"
    FINISHED = "finished"

    __hash__ = object.__hash__
    """Members are single objects. Their own hash is a call of Python, twice in every change of a state."""


class Event(_Member):
    SCHEDULED = "scheduled"
    HANDED_OFF = "handed_off"
    RETURNED = "returned"
    PREEMPTED = "preempted"
    STOPPED = "stopped"
    ABORTED = "aborted"

    __hash__ = object.__hash__


TRANSITIONS = MappingProxyType(
    {
        (State.WAITING, Event.SCHEDULED): State.RUNNING,
        (State.WAITING, Event.ABORTED): State.FINISHED,
        (State.RUNNING, Event.SCHEDULED): State.RUNNING,
        (State.RUNNING, Event.HANDED_OFF): State.PENDING_RETURN,
        (State.RUNNING, Event.PREEMPTED): State.WAITING,
        (State.RUNNING, Event.STOPPED): State.FINISHED,
        (State.RUNNING, Event.ABORTED): State.FINISHED,
        (State.PENDING_RETURN, Event.RETURNED): State.RUNNING,
        (State.PENDING_RETURN, Event.STOPPED): State.FINISHED,
        (State.PENDING_RETURN, Event.ABORTED): State.FINISHED,
    }
)


def next_state(state: State, event: Event) -> State:
    """The state after `event`; raises LocalProtocolError where the table has no entry."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise LocalProtocolError(f"a {state.value} sequence cannot be {event.value}") from None
