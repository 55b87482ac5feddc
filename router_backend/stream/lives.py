"""What becomes of a request when a process that held it is lost.

A request may take several lives. Each is a request of its own to the subservers, under an id of its own, so
whatever somebody still says of a former life (a process that was stopped and woke up, a late message) names
nobody any more. Decides on what it is told and performs nothing. The invariant: a life begins with exactly
the tokens that the home has in order, so that text which a client has seen is never changed or repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, replace
from enum import Enum

from router_backend.core.effects import Reason
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId

PAUSE_S = 0.25
"""Between two tries at first, then twice as long each time: the subservers must notice a return as well."""
PAUSE_S_MAX = 2.0


class PeerLoss(str, Enum):
    """What a deployment wants done with a request whose model was lost."""

    FAIL = "fail"
    """It ends with an error."""
    CONTINUE_LOCAL = "continue_local"
    """A model that lives finishes it alone."""
    RETRY = "retry"
    """It goes on as it was asked once the model is back, or ends with an error after a time."""


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """Of one deployment; `names` are its models in order."""

    names: tuple[str, ...]
    choice: PeerLoss = PeerLoss.FAIL
    retry_s: float = 10.0
    """Longest wait for a model that can go on, without a new token."""
    lives_max: int = 16

    def alone(self, request: Request, model: ModelIndex) -> Request:
        """The same request for `model` and no other."""
        params = (("mode", "never"), ("entry", self.names[model]))
        return replace(request, policy=PolicySpec("fixed", params))


@dataclass(frozen=True, slots=True)
class Start:
    """A life to begin now, on `needed`, the one that goes on writing in front."""

    request: Request
    needed: tuple[ModelIndex, ...]

    @property
    def entry(self) -> ModelIndex:
        return self.needed[0]

    def is_hit(self, model: ModelIndex, choice: PeerLoss) -> bool:
        """Does the loss of `model` end this life. Where it may go on, nobody waits until it is missed; where
        it may not, those who hand it over find out, if they ever do."""
        return model == self.entry or (choice is not PeerLoss.FAIL and model in self.needed)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nobody can go on yet."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The request ends with the error of its loss."""


Next = Start | Wait | GiveUp


@dataclass(slots=True)
class Lives:
    """The lives of one request; `needed` are its models, the one that writes first in front. Seconds."""

    policy: LossPolicy
    first: Request
    needed: tuple[ModelIndex, ...]
    number: int = 0
    """Of the present life."""
    is_between: bool = False
    """The last life is over and the next one has not begun."""
    _length: int = 0
    """Tokens of the answer when the last loss without progress began."""
    _lost_at: float | None = None
    _pause_s: float = PAUSE_S
    _again_at: float = -math.inf

    def begin(self, up: Sequences[bool]) -> Start | None:
        """The first life; None when nobody can give it now. `up[m]`: model m is alive, as the home knows."""
        living = [model for model in self.needed if up[model]]
        if len(living) == len(self.needed):
            return Start(self.first, self.needed)
        if self.policy.choice is PeerLoss.CONTINUE_LOCAL and living:
            return Start(self.policy.alone(self.first, living[0]), (living[0],))
        return None

    def lose(self, length: int, now: float) -> None:
        """The present life is over; the home has `length` tokens of the answer in order."""
        assert not self.is_between, f"{self.first.request_id} has no life to lose"
        self.is_between = True
        if self._lost_at is None or length > self._length:
            self._lost_at, self._length, self._pause_s = now, length, PAUSE_S
            self._again_at = now
        else:
            self._again_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)

    def next(self, up: Sequences[bool], now: float) -> Next:
        """What to do about a request whose life is over; `up` as for `begin`."""
        assert self.is_between and self._lost_at is not None, f"{self.first.request_id} lives"
        is_over = now >= self._lost_at + self.policy.retry_s or self.number >= self.policy.lives_max
        if self.policy.choice is PeerLoss.FAIL or is_over:
            return GiveUp()
        found = self.begin(up) if now >= self._again_at else None
        if found is None:
            return Wait()
        self.number += 1
        self.is_between = False
        request_id = RequestId(f"{self.first.request_id}.{self.number}")
        return replace(found, request=replace(found.request, request_id=request_id))


def end_of(request: Request, answer: Sequences[int]) -> Reason | None:
    """How `answer` has ended already, should nobody be left to say so; None if it goes on."""
    if answer and answer[-1] in request.stop_ids:
        return Reason.STOP
    return Reason.LENGTH if len(answer) >= request.max_tokens else None
