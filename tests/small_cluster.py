"""Real schedulers, a perfect network, scripted models, and a seed for who acts when.

For tests of what is decided, not of what can go wrong on the way: every message arrives, in order per
channel, at some later turn. The engine holds texts in its KV blocks, so a token is right only if the
scheduler's block tables are.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from router_backend.core.effects import Close, Effect, Emit, Reason, Send
from router_backend.core.request import ModelIndex, Request, RequestId
from router_backend.handoff.codec import Message, pack, unpack
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import BatchPlan, DraftReading, Hold, Row, StepOutput
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings
from tests.builders import NAMES
from tests.oracle import HEADS, VOCAB, Writer

TURNS_MAX = 400_000


class BlockEngine:
    """Slot p of a block table holds token p; what is read back is all that the model knows."""

    def __init__(self, writer: Writer, num_blocks: int, block_size: int) -> None:
        self._writer = writer
        self._slots = [-1] * (num_blocks * block_size)
        self._size = block_size

    def execute(self, plan: BatchPlan) -> StepOutput:
        for row in plan.rows:
            for position, token in enumerate(row.token_ids, row.start):
                self._slots[self._slot(row, position)] = token
        readings = [self._writer.read(self._text(row, row.end)) for row in plan.sampling_rows]
        needs = plan.needs
        column = lambda values: np.array(values, dtype=np.float32)  # noqa: E731
        return StepOutput(
            np.array([reading.token for reading in readings], dtype=np.int64),
            entropy=column([reading.entropy for reading in readings]) if needs.entropy else None,
            max_prob=column([reading.max_prob for reading in readings]) if needs.max_prob else None,
            scores={head: column([reading.scores[head] for reading in readings]) for head in needs.heads},
            logprobs=column([reading.logprob for reading in readings]),
            draft=self._draft_reading(plan.sampling_rows),
        )

    def _draft_reading(self, rows: Sequence[Row]) -> DraftReading | None:
        longest = max((row.draft for row in rows), default=0)
        tokens, nll = (np.zeros((len(rows), longest), dtype=kind) for kind in (np.int64, np.float32))
        for line, row in enumerate(rows):
            text = self._text(row, row.end) if row.draft else []
            for place in range(row.draft):
                before = len(text) - row.draft + place
                tokens[line, place] = self._writer.read(text[:before]).token
                nll[line, place] = self._writer.nll(text[:before], text[before])
        return DraftReading(tokens, nll) if longest else None

    def _text(self, row: Row, length: int) -> list[int]:
        return [self._slots[self._slot(row, position)] for position in range(length)]

    def _slot(self, row: Row, position: int) -> int:
        return row.blocks[position // self._size] * self._size + position % self._size


@dataclass
class Member:
    """One model: what it decides with, what it runs on, what waits for it."""

    scheduler: Scheduler
    engine: BlockEngine
    inbox: deque[Message] = field(default_factory=deque)
    flying: BatchPlan | None = None


@dataclass
class Story:
    """What the home saw of one request."""

    request: Request
    tokens: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(token, model) by position in the answer."""
    close: Close | None = None

    @property
    def answer(self) -> list[int]:
        return [self.tokens[position][0] for position in range(len(self.tokens))]

    @property
    def authors(self) -> list[int]:
        return [self.tokens[position][1] for position in range(len(self.tokens))]


@dataclass(frozen=True)
class Shape:
    """`thresholds` of the gate per model; blocks few enough to evict; rows and tokens of a batch."""

    thresholds: tuple[int, ...]
    num_blocks: int = 120
    block_size: int = 4
    batch_max: int = 8
    batch_tokens_max: int = 48
    live_max: int = 16


class SmallCluster:
    """Run requests to their end; every random choice comes from `seed`."""

    def __init__(self, writers: Sequence[Writer], shape: Shape, seed: int) -> None:
        self._random = random.Random(seed)
        self._live_max = shape.live_max
        self.stories: dict[RequestId, Story] = {}
        self._open = 0
        self.now = 0.0
        self.members = [self._member(writer, len(writers), shape) for writer in writers]
        self._home = PolicyBook(place(0, len(writers)))

    def run(self, requests: Sequence[Request]) -> list[Story]:
        waiting = deque(requests)
        for _ in range(TURNS_MAX):
            if not (waiting or self._open or any(m.inbox or m.flying for m in self.members)):
                break
            if waiting and self._open < self._live_max and self._random.random() < 0.5:
                self._admit(waiting.popleft())
            self._turn(self._random.choice(self.members))
        else:
            raise AssertionError(f"{self._open} requests are still open after {TURNS_MAX} turns")
        for member in self.members:
            member.scheduler.check_integrity()
        return [self.stories[request.request_id] for request in requests]

    def count(self, name: str) -> int:
        """The sum of a counter over all models."""
        return sum(getattr(member.scheduler.counters, name) for member in self.members)

    def _member(self, writer: Writer, models: int, shape: Shape) -> Member:
        settings = SchedulerSettings(
            model=ModelIndex(writer.model),
            thresholds=shape.thresholds,
            num_blocks=shape.num_blocks,
            block_size=shape.block_size,
            length_max=400,
            batch_max=shape.batch_max,
            batch_tokens_max=shape.batch_tokens_max,
            deadline_s=0.02,
        )
        scheduler = Scheduler(settings, PolicyBook(place(writer.model, models)))
        return Member(scheduler, BlockEngine(writer, shape.num_blocks, shape.block_size))

    def _admit(self, request: Request) -> None:
        self.stories[request.request_id] = Story(request)
        self._open += 1
        entry = self.members[self._home.router(request.policy).entry(request)]
        self._perform(entry.scheduler.admit(request, self.now))

    def _turn(self, member: Member) -> None:
        self.now += 0.001
        while member.inbox and self._random.random() < 0.8:
            self._perform(member.scheduler.on(member.inbox.popleft(), self.now))
        if member.flying is None:
            planned = member.scheduler.plan(self.now)
            member.flying = None if isinstance(planned, Hold) else planned
        elif self._random.random() < 0.8:
            output = member.engine.execute(member.flying)
            self._perform(member.scheduler.apply(member.flying, output, self.now))
            member.flying = None

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self.members[effect.target].inbox.append(unpack(pack(effect.message)))
                case Emit():
                    story = self.stories[effect.request_id]
                    for position, token in enumerate(effect.token_ids, effect.position):
                        assert position not in story.tokens, f"{effect} was committed before"
                        story.tokens[position] = (token, effect.model)
                case Close():
                    story = self.stories[effect.request_id]
                    assert story.close is None, f"{effect} after {story.close}"
                    story.close = effect
                    self._open -= 1


def place(model: int, models: int) -> Place:
    heads = {NAMES[0]: dict.fromkeys(HEADS, 0.5)}
    return Place(ModelIndex(model), NAMES[:models], ModelIndex(0), VOCAB, heads)


def is_answered(story: Story) -> bool:
    """Ended as asked, with every committed token there."""
    close = story.close
    return (
        close is not None
        and close.reason in (Reason.STOP, Reason.LENGTH)
        and close.length == len(story.tokens)
    )
