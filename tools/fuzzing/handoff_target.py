"""Two schedulers in the middle of their work, and a network that damages fields of what they say.

A trial is a short life of its own: real traffic of a routed request or two, in which some messages
arrive changed, twice or not at all. Whatever arrives, a scheduler may answer with a typed error only,
keeps account of every block, and can always plan and apply its next step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

import numpy as np

from router_backend.core.effects import Close, Effect, Emit, Send
from router_backend.core.errors import RouterError
from router_backend.core.record import Record
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, Sampling
from router_backend.handoff.codec import Message, pack, unpack
from router_backend.handoff.message import Abort, Admit
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import BatchPlan, DraftReading, StepOutput
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.stream.answer import Answer, Terms
from tools.fuzzing.messages import MESSAGES
from tools.fuzzing.mutations import fraction, text, whole

VOCAB = 50
TURNS = 40
NAMES = ("small", "large")
STITCH = PolicySpec("r_stitch", (("cutoff", 0.5),))
FIXED = PolicySpec("fixed", (("mode", "always"),))
HOLDING = (PolicySpec("bild", (("k", 3),)), PolicySpec("speculative"), PolicySpec("cascade"))


class HandoffTarget:
    """See the module."""

    def trial(self, chance: Random) -> str:
        life = _Life(chance)
        for _ in range(TURNS):
            life.turn()
        return f"{min(life.refused, 3)} refused" if life.refused < 3 else "3 or more refused"


class _Life:
    """One trial's world."""

    def __init__(self, chance: Random) -> None:
        self.refused = 0
        self._chance = chance
        self._now = 0.0
        self._schedulers = [_scheduler(model) for model in range(len(NAMES))]
        self._inboxes: list[deque[Message]] = [deque() for _ in NAMES]
        self._inboxes[0].extend(Admit(_request(number, chance)) for number in range(chance.randint(1, 3)))
        self._home = Answer(Terms(max_tokens=6), _NoText())

    def turn(self) -> None:
        self._now += 0.01
        model = self._chance.randrange(len(NAMES))
        if self._inboxes[model] and self._chance.random() < 0.8:
            self._hear(model, self._inboxes[model].popleft())
        self._step(model)
        self._schedulers[model].check_integrity()

    def _hear(self, model: int, message: Message) -> None:
        luck = self._chance.random()
        if luck < 0.25:
            message = _changed(message, self._chance)
        elif luck < 0.3:
            message = self._chance.choice(MESSAGES)
        elif luck < 0.35:
            self._inboxes[model].append(message)
        elif luck < 0.4:
            message = Abort(RequestId("r0"), 0)
        try:
            message = unpack(pack(message))
            self._perform(self._schedulers[model].on(message, self._now))
        except RouterError:
            self.refused += 1

    def _step(self, model: int) -> None:
        planned = self._schedulers[model].plan(self._now)
        if not isinstance(planned, BatchPlan):
            return
        _must_be_runnable(planned, self._schedulers[model].settings)
        self._perform(self._schedulers[model].apply(planned, _output(planned, self._chance), self._now))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._inboxes[effect.target].append(unpack(pack(effect.message)))  # type: ignore[arg-type]
                case Emit() | Close():
                    self._tell_home(_changed(effect, self._chance) if self._chance.random() < 0.2 else effect)

    def _tell_home(self, effect: Any) -> None:
        try:
            tell = self._home.on_emit if isinstance(effect, Emit) else None
            deliveries = tell(effect, 0, self._now) if tell else self._home.on_close(effect, self._now)
        except RouterError:
            self.refused += 1
            return
        assert sum(delivery.ending is not None for delivery in deliveries) <= 1, deliveries


class _NoText:
    def step(self, token_id: int) -> str:
        return ""

    def finish(self) -> str:
        return ""


def _scheduler(model: int) -> Scheduler:
    settings = SchedulerSettings(
        model=ModelIndex(model),
        thresholds=(1, 1),
        num_blocks=12,
        block_size=4,
        length_max=40,
        batch_max=4,
        batch_tokens_max=16,
        deadline_s=0.05,
    )
    return Scheduler(settings, PolicyBook(Place(ModelIndex(model), NAMES, ModelIndex(0), VOCAB)))


def _request(number: int, chance: Random) -> Request:
    prompt = tuple(chance.randrange(VOCAB) for _ in range(chance.randint(1, 12)))
    policy = chance.choice((STITCH, STITCH, FIXED, *HOLDING))
    return Request(RequestId(f"r{number}"), prompt, 6, "front", 0, Sampling(seed=3), policy, frozenset({1}))


def _must_be_runnable(plan: BatchPlan, settings: SchedulerSettings) -> None:
    """What an engine takes for granted."""
    for row in plan.rows:
        assert row.token_ids and all(0 <= token < VOCAB for token in row.token_ids), row
        assert not row.is_sampling or row.draft < len(row.token_ids), row
        assert row.start >= 0 and row.end <= len(row.blocks) * settings.block_size, row


def _output(plan: BatchPlan, chance: Random) -> StepOutput:
    count = len(plan.sampling_rows)
    tokens = np.array([chance.randrange(VOCAB) for _ in range(count)], dtype=np.int64)
    entropy = np.array([chance.uniform(0, 4) for _ in range(count)], dtype=np.float32)
    likely = np.array([chance.random() for _ in range(count)], dtype=np.float32)
    return StepOutput(
        tokens,
        np.log(likely),
        entropy=entropy if plan.needs.entropy else None,
        max_prob=likely if plan.needs.max_prob else None,
        draft=_draft_reading(plan, chance),
    )


def _draft_reading(plan: BatchPlan, chance: Random) -> DraftReading | None:
    """Now and then of the drafted tokens' own opinion."""
    rows = plan.sampling_rows
    longest = max((row.draft for row in rows), default=0)
    if not longest:
        return None
    own = np.array([[chance.randrange(VOCAB) for _ in range(longest)] for _ in rows], dtype=np.int64)
    for line, row in zip(own, rows, strict=True):
        if row.draft and chance.random() < 0.5:
            line[: row.draft] = row.token_ids[-row.draft :]
    nll = np.array([[chance.uniform(0, 8) for _ in range(longest)] for _ in rows], dtype=np.float32)
    return DraftReading(own, nll)


def _changed(message: Any, chance: Random) -> Any:
    """`message` with one field, or one field of its request, replaced by a value of the same type."""
    name = chance.choice(_names(message))
    value = getattr(message, name)
    is_whole = _names(value) and chance.random() < 0.9
    changes = {name: _changed(value, chance) if is_whole else _other(value, chance)}
    return message.replaced(**changes) if isinstance(message, Record) else replace(message, **changes)


def _names(value: Any) -> tuple[str, ...]:
    """The fields of a record or of a dataclass; of anything else none."""
    if isinstance(value, Record):
        return value.__struct_fields__
    return tuple(field.name for field in fields(value)) if is_dataclass(value) else ()


def _other(value: Any, chance: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return min(max(chance.choice((value + 1, value - 1, whole(chance))), -(2**63)), 2**63 - 1)
    if isinstance(value, float):
        return fraction(chance)
    if type(value) is str:
        return chance.choice((text(chance), "r0", "r1"))
    if isinstance(value, tuple):
        return _other_tuple(value, chance)
    return value


def _other_tuple(value: tuple[Any, ...], chance: Random) -> tuple[Any, ...]:
    if not value:
        return value
    at = chance.randrange(len(value))
    changed = (*value[:at], _other(value[at], chance), *value[at + 1 :])
    return chance.choice((changed, value[:at], value[at:], value * 2, ()))
