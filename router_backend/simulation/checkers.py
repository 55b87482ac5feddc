"""What must be true at every moment of a simulation, and at its end.

Keeps its own books from the effects alone and compares the schedulers with them. Changes nothing. A
`Violation` says what is wrong; the seed that leads to it is the caller's to print.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field

from router_backend.core.effects import Close, Effect, Emit
from router_backend.core.replicas import Replicas
from router_backend.core.request import Request, RequestKey
from router_backend.core.state import State
from router_backend.handoff.message import Handoff
from router_backend.scheduler.scheduler import Scheduler
from router_backend.simulation.commits import CommitLog
from router_backend.simulation.home import Home


class Violation(AssertionError):
    """The system under simulation broke a promise."""


def check(is_true: bool, *values: object) -> None:
    if not is_true:
        raise Violation(*values)


@dataclass(slots=True)
class Checkers:
    """The books of one simulation: who was told which tokens, and which requests have ended."""

    commits: CommitLog
    replicas: Replicas
    is_lossy: bool = False
    is_mortal: bool = False
    """Models may die and sleep: who was given up may wake up, go on and end what others have ended."""
    closes: dict[RequestKey, Close] = field(default_factory=dict)
    handoffs: int = 0
    resent: int = 0
    _held: dict[RequestKey, list[int]] = field(default_factory=dict)
    """Tokens that each model has been given of, or has written into, a request."""
    _last_seq: dict[RequestKey, int] = field(default_factory=dict)
    _places: dict[RequestKey, list[int | None]] = field(default_factory=dict)
    """The subserver of each model that a life has been on."""

    def admitted(self, request: Request, subserver: int, given: int = 0) -> None:
        """The home has given `request` to `subserver`, with `given` tokens of its answer."""
        model = self.replicas.models[subserver]
        models = len(self.replicas.counts)
        self._held[request.key] = [0] * models
        self._held[request.key][model] = request.prompt_len + given
        self._last_seq[request.key] = -1
        self._places[request.key] = [None] * models
        self._places[request.key][model] = subserver

    def see(self, subserver: int, effect: Effect) -> None:
        """Every effect of every scheduler, in order; `subserver` caused it. Commits enter the log here."""
        model = self.replicas.models[subserver]
        if isinstance(effect, Emit):
            self._see_place(effect.key, subserver)
            self._see_emit(model, effect)
        elif isinstance(effect, Close):
            check(self.is_mortal or effect.key not in self.closes, "closed twice", model, effect)
            self.closes[effect.key] = effect
        elif isinstance(effect.message, Handoff):
            self._see_place(effect.message.key, subserver, effect.target)
            self._see_handoff(model, effect.message)

    def _see_place(self, key: RequestKey, *touched: int) -> None:
        """A life is on one replica of each model, and stays there."""
        places = self._places[key]
        for number in touched:
            model = self.replicas.models[number]
            check(places[model] in (None, number), "on two replicas of a model", key, places, number)
            places[model] = number

    def _see_emit(self, model: int, emit: Emit) -> None:
        text, held = self.commits[emit.key], self._held[emit.key]
        check(self.is_mortal or emit.key not in self.closes, "commit after the end", emit)
        check(emit.model == model and emit.position == len(text.answer), "commit out of order", emit)
        check(held[model] == len(text.tokens), "commit by a model that lacks tokens", emit, held)
        text.extend(emit.token_ids)
        text.writers += [model] * len(emit.token_ids)
        held[model] = len(text.tokens)

    def _see_handoff(self, model: int, handoff: Handoff) -> None:
        key = handoff.key
        text, held = self.commits[key], self._held[key]
        if handoff.seq <= self._last_seq[key]:
            check(self.is_lossy or self.is_mortal, "sent again without a loss", handoff)
            self.resent += 1
            return
        check(handoff.source == model != handoff.target, "a message in another's name", model, handoff)
        check(handoff.seq == self._last_seq[key] + 1, "hand-offs are not numbered in order", handoff)
        check(handoff.base == held[handoff.target], "not the unseen suffix", handoff, held)
        check(list(handoff.token_ids) == text.tokens[handoff.base :], "other tokens than committed", handoff)
        held[handoff.target] = handoff.loc
        check(list(handoff.seen) == held, "the ledger is wrong", handoff, held)
        check((handoff.request is None) == (handoff.base > 0), "first contact or not?", handoff)
        self._last_seq[key] = handoff.seq
        self.handoffs += 1

    def after_turn(self, schedulers: Sequences[Scheduler], touched: Iterable[int]) -> None:
        """Blocks are conserved, copies are prefixes of the committed text, one model at most may append."""
        for subserver in touched:
            scheduler = schedulers[subserver]
            scheduler.check_integrity()
            for sequence in scheduler.roster.queues:
                tokens = self.commits[sequence.key].tokens
                check(sequence.tokens == tokens[: len(sequence.tokens)], "not a prefix", subserver, sequence)
        owned = [key for scheduler in schedulers for key in _owned(scheduler)]
        check(len(owned) == len(set(owned)), "two models may append", owned)

    def idle(self, scheduler: Scheduler, now: float) -> None:
        """A model that could launch and did not: nobody there has waited for longer than the deadline."""
        queues = scheduler.roster.queues
        if queues.ready and not scheduler.settings.mode.is_barrier:
            waited_s = now - queues.oldest_at
            limit_s = scheduler.settings.deadline_s
            check(waited_s < limit_s, "waits beyond the bound", scheduler.settings.model, waited_s)

    def at_end(self, schedulers: Sequences[Scheduler], home: Home) -> None:
        """Everything has ended, once, and nothing is left of it anywhere."""
        check(not home.unended, "never ended", home.unended)
        for scheduler in schedulers:
            left = [(sequence.key, sequence.state) for sequence in scheduler.roster.queues]
            check(not left, "left behind", scheduler.settings.model, left)
            check(scheduler.roster.kv.pool.num_held == 0, "blocks left behind", scheduler.settings.model)
            check(not scheduler.roster.live, "still live", scheduler.roster.live)
            check(not any(scheduler.roster.placement.load), "still placed", scheduler.roster.placement)
        if self.is_mortal:
            return  # what the dead had counted is gone
        committed = sum(scheduler.counters.committed for scheduler in schedulers)
        check(committed == sum(len(text.answer) for text in self.commits.texts.values()), committed)
        check(sum(scheduler.counters.handoffs_sent for scheduler in schedulers) == self.handoffs)
        if not self.is_lossy:
            self._check_complete(home)

    def _check_complete(self, home: Home) -> None:
        for key, answer in home.answers.items():
            check(key in self.closes, "ended without a close", key)
            check(not answer.is_given_up, "given up without a loss", key)
            text = self.commits[key]
            check(answer.token_ids == text.answer, "the client saw another text", key)
            check([token.model for token in answer.tokens] == text.writers, "other writers", key)
            check(self.closes[key].length == len(text.answer), "wrong length", key)


def _owned(scheduler: Scheduler) -> list[RequestKey]:
    queues = scheduler.roster.queues
    running = [key for key, sequence in queues.executing.items() if sequence.state is not State.FINISHED]
    return [*queues.ready, *running]
