"""Times what the core and the text path do, which read no clock themselves."""

from __future__ import annotations

from collections.abc import Callable

from router_backend.core.histogram import BRIEF, Histogram
from router_backend.core.request import ModelIndex, Request
from router_backend.core.sequence import Sequence
from router_backend.handoff.message import Handoff
from router_backend.policies.base import HoldingRouter
from router_backend.scheduler.batch import IntArray, StepBatch
from router_backend.stream.answer import TextSource


class Stopwatch:
    """Seconds spent on one kind of work; used by one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.spread = Histogram(BRIEF)

    def router(self, inner: HoldingRouter) -> HoldingRouter:
        """`inner`, its decisions timed."""
        return _TimedRouter(inner, self)

    def text(self, inner: TextSource) -> TextSource:
        """`inner`, its tokens timed."""
        return _TimedText(inner, self)

    def note(self, began_at: float) -> None:
        self.spread.observe(self.clock() - began_at)


class _TimedRouter:
    def __init__(self, inner: HoldingRouter, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch
        self.needs = inner.needs
        self.holds_back = inner.holds_back

    def entry(self, request: Request) -> ModelIndex:
        return self._inner.entry(request)

    def route(self, step: StepBatch) -> IntArray:
        began_at = self._watch.clock()
        destinations = self._inner.route(step)
        self._watch.note(began_at)
        return destinations

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return self._inner.send(sequence, target)

    def receive(self, sequence: Sequence, handoff: Handoff) -> None:
        self._inner.receive(sequence, handoff)

    def at_end(self, sequence: Sequence) -> ModelIndex | None:
        return self._inner.at_end(sequence)

    def verify(self, step: StepBatch) -> IntArray:
        began_at = self._watch.clock()
        counts = self._inner.verify(step)
        self._watch.note(began_at)
        return counts


class _TimedText:
    def __init__(self, inner: TextSource, watch: Stopwatch) -> None:
        self._inner = inner
        self._watch = watch

    def step(self, token_id: int) -> str:
        began_at = self._watch.clock()
        text = self._inner.step(token_id)
        self._watch.note(began_at)
        return text

    def finish(self) -> str:
        return self._inner.finish()
