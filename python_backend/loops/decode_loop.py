"""The decode loop of a subserver: the single owner of its scheduler and its runner.

A turn hears what has arrived, asks the scheduler for a batch, runs it and passes the effects on.
Must never touch a socket or a client. The invariant: whatever an event or a batch causes leaves as
effects in the same turn. The clock is read when a turn begins and again when its batch has ended,
because what became ready in a step waits from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from python_backend.loops.event_log import Step
from python_backend.loops.inbox import Inbox
from python_backend.loops.loop_figures import LoopFigures
from python_backend.runner.base import ModelRunner
from router_backend.core.effects import Close, Effect, Reason
from router_backend.core.errors import EngineLostError, PeerLostError, RouterError, RunnerError
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import Request
from router_backend.core.sequence import Sequence
from router_backend.core.state import State
from router_backend.handoff.message import (
    Abort,
    Admit,
    Admitted,
    Finished,
    Go,
    Handoff,
    Joined,
    Nack,
    Report,
    Thresholds,
)
from router_backend.scheduler.batch import BatchPlan, Hold, StepOutput

_log = logging.getLogger(__name__)

SNAPSHOT_S = 0.2
"""Longest age of the figures, also while nothing runs."""
INTEGRITY_S = 1.0
"""How often an idle loop looks whether every block is accounted for: milliseconds for a large pool."""

BROKEN = "the model's process stopped after an internal error; its log has the details"
UNLOADED = "the model is being unloaded"


@dataclass(frozen=True, slots=True)
class PeerLost:
    """Subserver `peer` is silent, gone or new: what it held of our requests is lost."""

    peer: ReplicaIndex


@dataclass(frozen=True, slots=True)
class PeerBack:
    """Subserver `peer` can be handed requests (again)."""

    peer: ReplicaIndex


@dataclass(frozen=True, slots=True)
class HomeLost:
    """The process that owns the clients of `home` is gone: nobody reads their answers."""

    home: str


SchedulerMessage = (
    Admit | Handoff | Admitted | Joined | Finished | Nack | Abort | Report | Go | Thresholds
)
DecodeEvent = SchedulerMessage | PeerLost | PeerBack | HomeLost


class StepScheduler(Protocol):
    """What the loop asks of `router_backend.scheduler.scheduler.Scheduler`."""

    def on(self, message: SchedulerMessage, now: float) -> list[Effect]: ...
    def lose_peer(self, peer: ReplicaIndex) -> list[Effect]: ...
    def restore_peer(self, peer: ReplicaIndex) -> None: ...
    def lose_home(self, home: str) -> list[Effect]: ...
    def plan(self, now: float) -> BatchPlan | Hold: ...
    def apply(self, plan: BatchPlan, output: StepOutput, now: float) -> list[Effect]: ...
    def fail(self, plan: BatchPlan, message: str) -> list[Effect]: ...
    def check_integrity(self) -> None: ...


class DecodeLoop:
    """`run` until `stop`; `perform` takes the effects of a turn, `publish` is called a few times a second."""

    def __init__(
        self,
        scheduler: StepScheduler,
        runner: ModelRunner,
        inbox: Inbox[DecodeEvent],
        perform: Callable[[list[Effect]], None],
        clock: Callable[[], float],
    ) -> None:
        self.figures = LoopFigures()
        self.publish: Callable[[], None] = lambda: None
        self.note: Callable[[Step], None] = lambda step: None
        """Told of every step that has run, and what followed."""
        self.held: Callable[[], Iterable[Sequence]] = tuple
        """The sequences of the scheduler, to be closed at the end."""
        self.farewells: Callable[[Request], list[Effect]] = lambda request: []
        """What tells the other subservers that a request has ended here."""
        self._scheduler = scheduler
        self._runner = runner
        self._inbox = inbox
        self._perform = perform
        self._clock = clock
        self._published_at = float("-inf")
        self._checked_at = float("-inf")
        self._busy_since = float("inf")
        self._is_stopping = False

    def run(self) -> None:
        """Turns until `stop` or a broken invariant; either way every request known here is closed first."""
        last_words = BROKEN
        try:
            while not self._is_stopping:
                hold = self.turn()
                if hold is not None:
                    self._rest(hold)
            last_words = UNLOADED
        finally:
            self._pass_on(self._last_closes(last_words))

    def busy_s(self) -> float:
        """How long the present turn has lasted, seconds; from any thread."""
        return max(0.0, self._clock() - self._busy_since)

    def stop(self) -> None:
        """End `run` after its current turn; from any thread."""
        self._is_stopping = True
        self._inbox.wake()

    def turn(self) -> Hold | None:
        """One turn; the Hold says that there was nothing to run."""
        now = self._busy_since = self._clock()
        self.figures.turns += 1
        effects = self._hear(now)
        plan = self._scheduler.plan(now)
        # What was heard must not wait for the step.
        self._pass_on(effects)
        if isinstance(plan, BatchPlan):
            self._execute(plan)
        if now >= self._published_at + SNAPSHOT_S:
            self.figures.lag.note(self._published_at + SNAPSHOT_S, now)
            self._published_at = now
            self.publish()
        if plan == Hold():
            self.figures.progressed_at = None
            self._check_now_and_then(now)
        return plan if isinstance(plan, Hold) else None

    def _hear(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for event in self._inbox.drain():
            try:
                effects += self._react(event, now)
            except RouterError as error:
                self.figures.loop_errors += 1
                _log.error("%s could not be followed: %s", type(event).__name__, error)
                effects += self._refusal(event, error)
        return effects

    def _react(self, event: DecodeEvent, now: float) -> list[Effect]:
        match event:
            case PeerLost():
                return self._scheduler.lose_peer(event.peer)
            case PeerBack():
                self._scheduler.restore_peer(event.peer)
                return []
            case HomeLost():
                return self._scheduler.lose_home(event.home)
            case _:
                return self._scheduler.on(event, now)

    def _execute(self, plan: BatchPlan) -> None:
        """Run a step, pass on what follows, and only then count it: a peer waits for its hand-offs."""
        started_at = self._clock()
        self.figures.begin_step(started_at)
        try:
            output = self._runner.execute(plan)
        except RunnerError as error:
            self.figures.runner_errors += 1
            _log.error("step %d with %d rows failed: %s", plan.step, len(plan.rows), error)
            self._pass_on(self._hear(self._clock()) + self._scheduler.fail(plan, str(error)))
            if isinstance(error, EngineLostError):
                raise
            return
        ended_at = self._clock()
        # What arrived during the step comes before its end, or a report of who waits would not count it.
        heard = self._hear(ended_at)
        effects = self._scheduler.apply(plan, output, ended_at)
        self._pass_on(heard + effects)
        self.figures.end_step(plan, started_at, ended_at)
        self.note(Step(started_at, ended_at, plan, effects))

    def _check_now_and_then(self, now: float) -> None:
        if now >= self._checked_at + INTEGRITY_S:
            self._checked_at = now
            self._scheduler.check_integrity()

    def _pass_on(self, effects: list[Effect]) -> None:
        if effects:
            self._perform(effects)

    def _rest(self, hold: Hold) -> None:
        self._busy_since = float("inf")
        latest = self._published_at + SNAPSHOT_S
        self._inbox.wait(latest if hold.until is None else min(hold.until, latest))

    def _last_closes(self, message: str) -> list[Effect]:
        """An error for every request that only this loop can end: those that wait or run here, those that
        had just arrived. Whoever was handed a parked one ends it."""
        text = str(PeerLostError(message))
        effects: list[Effect] = []
        for event in self._inbox.drain():
            if isinstance(event, Admit):
                effects.append(_error(event.request, 0, text))
        for held in self.held():
            if held.state is not State.PENDING_RETURN:
                effects.append(_error(held.request, held.num_committed, text))
                effects += self.farewells(held.request)
        return effects

    def _refusal(self, event: DecodeEvent, error: RouterError) -> list[Effect]:
        """The end of a request that could not even be taken in: no other process knows that it failed."""
        match event:
            case Admit():
                return [_error(event.request, 0, str(error))]
            case Handoff(request=Request() as request):
                close = _error(request, event.committed_len - request.prompt_len, str(error))
                return [close, *self.farewells(request)]
        return []


def _error(request: Request, length: int, message: str) -> Close:
    return Close(request.home, request.request_id, request.epoch, Reason.ERROR, max(0, length), message)
