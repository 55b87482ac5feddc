"""A deployment whose models die, sleep and come back, with the recovery that a real home has.

Adds to `Cluster` who is down, who has noticed it, and what is said again to those who return. Decides nothing
itself: schedulers, lives and farewells are the real ones. A dead model loses everything and what is under
way to it; a sleeping one finds its letters and its step where it left them, though others have given it up.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Sequence as Sequences

import numpy as np

from router_backend.core.effects import Close
from router_backend.core.errors import PeerLostError
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex, Request, RequestKey
from router_backend.handoff.codec import Message, pack, unpack
from router_backend.handoff.message import Abort, Finished, Handoff
from router_backend.policies.registry import PolicyBook
from router_backend.simulation.cluster import HOME, Abandon, Cluster, Delivery, Deployment, StepDone
from router_backend.simulation.home import Answer
from router_backend.simulation.outages import (
    Again,
    Body,
    Fall,
    Faults,
    Late,
    Letter,
    Notice,
    Outage,
    Rise,
    View,
)
from router_backend.stream.lives import GiveUp, Lives, PeerLoss, Start, end_of

LATE_S = 16.0
"""How long commits may still arrive after the close that counts them."""
AGAIN_S = 0.5
"""How often the home looks whether a request that waits for a model can go on."""


class MortalCluster(Cluster):
    """See the module."""

    def __init__(
        self, deployment: Deployment, faults: Faults, books: Sequences[PolicyBook] | None = None
    ) -> None:
        super().__init__(deployment, books)
        self.faults = faults
        self.checkers.is_mortal = True
        self.recoveries = 0
        models = range(len(self.nodes))
        self._rng = np.random.default_rng([deployment.seed, 1])
        self._bodies = [Body() for _ in models]
        self._views = {observer: View([0] * len(self.nodes)) for observer in (HOME, *models)}
        self._leavers: set[RequestKey] = set()
        for outage in faults.outages:
            self.clock.schedule(outage.at, Fall(outage))

    def _handle(self, event: object) -> None:
        match event:
            case Fall():
                self._fall(event.outage)
            case Rise():
                self._rise(event.outage)
            case Notice():
                self._notice(event)
            case Letter():
                self._receive(event)
            case Late():
                self._find_stranded(event.request)
            case Again():
                self._go_on(self.home.answers[event.key])
            case StepDone():
                self._end_step(event)
            case _:
                super()._handle(event)

    def _fall(self, outage: Outage) -> None:
        model, body = outage.model, self._bodies[outage.model]
        self.trace.add(self.now, "dies" if outage.is_death else "sleeps", model, "")
        body.falls += 1
        body.fell_at, body.is_dead = self.now, outage.is_death
        if outage.is_death:
            body.births += 1
            self.nodes[model] = self._node(model)
        self.nodes[model].is_down = True
        for observer in self._views:
            if observer != model:
                self._watch(observer, model)
        self.clock.schedule(self.now + outage.lasts_s, Rise(outage))

    def _rise(self, outage: Outage) -> None:
        """It learns of the others and they of it. A new process speaks first; one that slept may first go on
        where it was."""
        model, body = outage.model, self._bodies[outage.model]
        self.trace.add(self.now, "rises", model, "")
        self.nodes[model].is_down = False
        if outage.is_death:
            self._views[model] = View([other.births for other in self._bodies])
        asleep, body.asleep = body.asleep, []
        is_first = bool(self._rng.random() < 0.5)
        if is_first:
            self._wake(asleep)
        for other in self._views:
            if other != model and not self._is_down(other):
                self._hear(other, model)
        for other in range(len(self.nodes)):
            if other != model:
                self._watch(model, other) if self._is_down(other) else self._hear(model, other)
        if not is_first:
            self._wake(asleep)

    def _wake(self, asleep: list[Letter | StepDone]) -> None:
        for event in asleep:
            self._handle(event)

    def _is_down(self, model: int) -> bool:
        return model != HOME and self.nodes[model].is_down

    def _watch(self, observer: int, model: int) -> None:
        ticks = int(self._rng.integers(0, 9)) / 8
        at = self.now + self.faults.notice_s * (1 + ticks)
        self.clock.schedule(at, Notice(observer, model, self._bodies[model].falls))

    def _notice(self, event: Notice) -> None:
        observer, model, falls = event
        is_same = self._bodies[model].falls == falls and self.nodes[model].is_down
        if is_same and not self._is_down(observer) and model not in self._views[observer].lost:
            self._lose(observer, model)

    def _hear(self, observer: int, model: int) -> None:
        """A sign of life: of a stranger's, the former process is lost."""
        view, births = self._views[observer], self._bodies[model].births
        if view.births[model] != births and model not in view.lost:
            self._lose(observer, model)
        view.births[model] = births
        if model in view.lost:
            view.lost.discard(model)
            if observer != HOME:
                self.nodes[observer].scheduler.restore_peer(ReplicaIndex(model))
            for farewell in view.farewells.again(str(model)):
                self._post(observer, model, farewell)

    def _lose(self, observer: int, model: int) -> None:
        self.trace.add(self.now, "loses", observer, str(model))
        self._views[observer].lost.add(model)
        if observer != HOME:
            self._perform(observer, self.nodes[observer].scheduler.lose_peer(ReplicaIndex(model)))
            return
        for answer in self.home.answers.values():
            if answer.ended_at is None and self._is_hit(answer, model):
                self._recover(answer)

    def _is_hit(self, answer: Answer, subserver: int) -> bool:
        """As `FrontDesk` decides it: of a model with other replicas, the home knows the first place only."""
        model = self.replicas.models[subserver]
        if self.replicas.counts[model] > 1:
            return answer.replica == subserver
        return answer.start is not None and answer.start.is_hit(model, self.faults.loss.choice)

    def _lost(self) -> Container[int]:
        return self._views[HOME].lost

    def _receive(self, letter: Letter) -> None:
        """What a process had written when it died may or may not have left it; nothing is read for it."""
        source, target = letter.source, letter.inner.target
        if self._births(source) != letter.births[0] and self._rng.random() < 0.5:
            return
        if self._births(target) != letter.births[1]:
            return
        if not self._is_down(target):
            self._deliver(letter.inner)
        elif not self._bodies[target].is_dead:
            self._bodies[target].asleep.append(letter)

    def _births(self, process: int) -> int:
        return 0 if process == HOME else self._bodies[process].births

    def _deliver(self, event: Delivery) -> None:
        message = unpack(event.frames)
        answer = self.home.of_life(message.key) if isinstance(message, Close) else None
        if not isinstance(message, Close) or answer is None or answer.ended_at is not None:
            super()._deliver(event)
        elif self.faults.loss.choice is not PeerLoss.FAIL and message.message.startswith(PeerLostError.code):
            self._recover(answer)
        else:
            super()._deliver(event)
            self.clock.schedule(self.now + LATE_S, Late(answer.request))

    def _find_stranded(self, request: Request) -> None:
        answer = self.home.of_life(request.key)
        if answer is not None and answer.ended_at is None:
            self._recover(answer)

    def _end_step(self, event: StepDone) -> None:
        node = self.nodes[event.model]
        if node.is_down and not self._bodies[event.model].is_dead:
            self._bodies[event.model].asleep.append(event)
        elif node.running is event.plan:
            self._complete(event)

    def _post(self, source: int, target: int, message: Message) -> None:
        view = self._views[source]
        if target != HOME and isinstance(message, Abort | Finished):
            heard_at = self._bodies[target].fell_at if self.nodes[target].is_down else self.now
            view.farewells.note(str(target), message, heard_at, self.now)
        if target in view.lost:
            if isinstance(message, Handoff):
                self._lose(source, target)
            return
        births = self._births(source), self._births(target)
        frames = pack(message)
        for at in self.network.arrivals((source, target), self.now, source != HOME):
            self.clock.schedule(at, Letter(source, births, Delivery(target, frames)))

    def _arrive(self, request: Request) -> None:
        entry = self._books[0].router(request.policy).entry(request)
        others = [ModelIndex(model) for model in range(len(self.replicas.counts)) if model != entry]
        super()._arrive(request)
        answer = self.home.answers[request.key]
        answer.lives = Lives(self.faults.loss, request, (entry, *others))
        answer.start = Start(request, answer.lives.needed)
        if not all(self._up()):
            self._recover(answer)

    def _abort(self, event: Abandon) -> None:
        self._leavers.add(event.key)
        super()._abort(event)

    def _recover(self, answer: Answer) -> None:
        """The present life is over."""
        lives = answer.lives
        assert lives is not None
        if lives.is_between:
            return
        self._abort_everywhere(answer.request)
        answer.close = None
        answer.order.drop_ahead()
        reason = end_of(answer.request, answer.token_ids)
        if reason is not None:
            answer.ended_at = self.now
            return
        lives.lose(len(answer.tokens), self.now)
        self._go_on(answer)

    def _go_on(self, answer: Answer) -> None:
        lives = answer.lives
        if lives is None or not lives.is_between or answer.ended_at is not None:
            return
        if lives.first.key in self._leavers:
            self.home.give_up(lives.first.key, self.now)
            return
        match lives.next(self._up(), self.now):
            case Start() as start:
                self._begin(answer, start)
            case GiveUp():
                self.home.give_up(lives.first.key, self.now)
            case _:
                self.clock.schedule(self.now + AGAIN_S, Again(lives.first.key))

    def _up(self) -> list[bool]:
        """By model: the home believes that one of its replicas is there."""
        lost = self._views[HOME].lost
        models = range(len(self.replicas.counts))
        return [any(replica not in lost for replica in self.replicas.of(model)) for model in models]

    def _begin(self, answer: Answer, start: Start) -> None:
        tokens, request = tuple(answer.token_ids), start.request
        self.recoveries += 1
        answer.request, answer.start = request, start
        assert answer.lives is not None
        self.home.client_of[request.key] = answer.lives.first.key
        self.commits.open(request, tokens)
        self._admit(request, start.entry, tokens)
