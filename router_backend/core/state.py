"""The life of a sequence on one model, as one table.

The README's and the architecture page's diagrams are drawn from it (`python -m tools.draw_states`).
Where the KV lives is data, not a state: a parked sequence may or may not still hold blocks.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from router_backend.core.errors import LocalProtocolError


class _Member(Enum):
    """Every change of a state looks up a pair of members. They are single objects, so an object's hash is
    right for them; Enum's own is a call of Python."""

    __hash__ = object.__hash__


class State(_Member):
    WAITING = "waiting"
    RUNNING = "running"
    PENDING_RETURN = "pending_return"
    FINISHED = "finished"


class Event(_Member):
    SCHEDULED = "scheduled"
    HANDED_OFF = "handed_off"
    RETURNED = "returned"
    PREEMPTED = "preempted"
    STOPPED = "stopped"
    ABORTED = "aborted"


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
