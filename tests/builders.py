"""Small builders for core tests: requests, schedulers, hand-written runner outputs."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from typing import Any

import numpy as np

from router_backend.core.effects import Close, Effect, Emit, Send
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, RequestKey
from router_backend.handoff.message import Handoff
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.batch import BatchPlan, StepOutput
from router_backend.scheduler.scheduler import Scheduler
from router_backend.scheduler.settings import SchedulerSettings

VOCAB = 100
EOS = 99
NAMES = ("small", "large", "huge")
NEVER = PolicySpec("fixed", (("mode", "never"),))
ALWAYS = PolicySpec("fixed", (("mode", "always"),))


def request(name: str = "r", prompt: Sequences[int] = (1, 2, 3), **changes: Any) -> Request:
    fields: dict[str, Any] = {"max_tokens": 8, "policy": NEVER, "stop_ids": frozenset({EOS})}
    return Request(RequestId(name), tuple(prompt), **{**fields, **changes})


def key(name: str = "r", epoch: int = 0) -> RequestKey:
    return RequestKey(RequestId(name), epoch)


def stitch(cutoff: float) -> PolicySpec:
    return PolicySpec("r_stitch", (("cutoff", cutoff),))


def scheduler(model: int = 0, models: int = 2, **changes: Any) -> Scheduler:
    fields: dict[str, Any] = {
        "thresholds": (1,) * models,
        "num_blocks": 64,
        "block_size": 4,
        "length_max": 200,
        "batch_max": 8,
        "batch_tokens_max": 64,
        "deadline_s": 1.0,
    }
    settings = SchedulerSettings(model=ModelIndex(model), **{**fields, **changes})
    place = Place(ModelIndex(model), NAMES[:models], ModelIndex(0), VOCAB)
    return Scheduler(settings, PolicyBook(place))


def output(*tokens: int, entropy: Sequences[float] | None = None) -> StepOutput:
    return StepOutput(
        np.array(tokens, dtype=np.int64),
        entropy=None if entropy is None else np.array(entropy, dtype=np.float32),
    )


def plan(chosen: Scheduler, now: float = 0.0) -> BatchPlan:
    planned = chosen.plan(now)
    assert isinstance(planned, BatchPlan), planned
    return planned


def step(chosen: Scheduler, *tokens: int, entropy: Sequences[float] | None = None) -> list[Effect]:
    """Plan a batch and apply these sampled tokens to it."""
    return chosen.apply(plan(chosen), output(*tokens, entropy=entropy), 0.0)


def handoffs(effects: list[Effect]) -> list[Handoff]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Handoff)]


def emitted(effects: list[Effect]) -> list[tuple[int, tuple[int, ...]]]:
    return [(effect.position, effect.token_ids) for effect in effects if isinstance(effect, Emit)]


def closes(effects: list[Effect]) -> list[Close]:
    return [effect for effect in effects if isinstance(effect, Close)]
