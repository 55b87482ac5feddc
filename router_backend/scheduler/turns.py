"""One model's part in the barrier modes: run when told to, report afterwards.

In the asynchronous modes it never refuses a launch and has nothing to report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from router_backend.core.effects import Effect, Send
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex
from router_backend.handoff.checks import MessageBounds
from router_backend.handoff.message import Go, Handoff, Report
from router_backend.scheduler.roster import Roster
from router_backend.scheduler.rounds import LEADER, Rounds


@dataclass(slots=True)
class Turns:
    """Whether this model may start a step now. On the leader it also keeps the rounds."""

    roster: Roster
    is_barrier: bool = field(init=False)
    may_run: bool = False
    _rounds: Rounds | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        settings = self.roster.settings
        self.is_barrier = settings.mode.is_barrier
        if self.is_barrier and settings.model == LEADER:
            self._rounds = Rounds(settings.mode, [0] * settings.models)

    def note_arrivals(self, were_ready: int) -> list[Effect]:
        """Tell the leader when the queue has left zero; `were_ready` is its length before.

        A turn that an abort has emptied before it began is over.
        """
        queues = self.roster.queues
        ready = len(queues.ready)
        if self.may_run and not ready and not queues.executing:
            return self.end_step(())
        if not self.is_barrier or were_ready or not ready:
            return []
        return self._report(Report(self.roster.settings.model, ready))

    def end_step(self, effects: Iterable[Effect]) -> list[Effect]:
        """Report after a step that caused `effects`."""
        if not self.is_barrier:
            return []
        self.may_run = False
        settings = self.roster.settings
        sent = [0] * settings.models
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Handoff):
                sent[effect.target] += 1
        report = Report(settings.model, len(self.roster.queues.ready), tuple(sent), is_step_over=True)
        return self._report(report)

    def go(self) -> list[Effect]:
        """The leader's word. With nothing to run, the turn is over at once."""
        self.may_run = True
        return [] if self.roster.queues.ready else self.end_step(())

    def hear(self, report: Report) -> list[Effect]:
        """The leader hears a report and starts whom it is time to start."""
        MessageBounds(self.roster.settings.model, self.roster.settings.models, 0).check_report(report)
        return [] if self._rounds is None else self._start(self._rounds.hear(report))

    def lose(self, model: ModelIndex) -> list[Effect]:
        return [] if self._rounds is None else self._start(self._rounds.lose(model))

    def _report(self, report: Report) -> list[Effect]:
        return [Send(ReplicaIndex(LEADER), report)] if self._rounds is None else self.hear(report)

    def _start(self, models: list[ModelIndex]) -> list[Effect]:
        others = [ReplicaIndex(model) for model in models if model != LEADER]
        effects: list[Effect] = [Send(other, Go(LEADER)) for other in others]
        return effects + (self.go() if LEADER in models else [])
