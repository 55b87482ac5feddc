"""What is told of a token is its author's figures, in the step that commits it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from router_backend.core.effects import LOGPROB_MIN, Effect, Emit, TokenLogprobs
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import StepOutput
from router_backend.scheduler.scheduler import Scheduler
from tests.builders import output, plan, request, scheduler, stitch


def scored(*tokens: int, own: float = -1.0, entropy: list[float] | None = None) -> StepOutput:
    """Three top tokens per row, each one less likely than the one before."""
    ids = np.array([[token, token + 1, token + 2] for token in tokens], dtype=np.int64)
    values = np.broadcast_to(np.array([own, -2.0, -3.0], dtype=np.float32), ids.shape)
    column = np.full(len(tokens), own, dtype=np.float32)
    return replace(output(*tokens, entropy=entropy), logprobs=column, top_ids=ids, top_logprobs=values)


def asking(chosen: Scheduler, name: str, logprobs: int | None, **changes: object) -> None:
    chosen.admit(request(name, sampling=Sampling(logprobs=logprobs), **changes), 0.0)


def told(effects: list[Effect]) -> list[tuple[TokenLogprobs, ...]]:
    return [effect.logprobs for effect in effects if isinstance(effect, Emit)]


@pytest.mark.case("F28")
def test_each_row_is_told_what_it_asked_for_whatever_the_others_ask() -> None:
    chosen = scheduler()
    for name, count in (("none", None), ("own", 0), ("top", 2)):
        asking(chosen, name, count)
    effects = chosen.apply(plan(chosen), scored(40, 50, 60), 0.0)

    assert told(effects) == [
        (),
        (TokenLogprobs(-1.0),),
        (TokenLogprobs(-1.0, ((60, -1.0), (61, -2.0))),),
    ]


@pytest.mark.case("F28")
def test_nothing_is_told_of_a_token_that_is_discarded() -> None:
    chosen = scheduler()
    asking(chosen, "r", 1, policy=stitch(0.2))
    effects = chosen.apply(plan(chosen), scored(40, entropy=[4.0]), 0.0)

    assert (told(effects), chosen.counters.discarded) == ([], 1)


@pytest.mark.parametrize("broken", [float("nan"), float("-inf"), -1e30])
def test_a_figure_that_no_client_can_read_becomes_the_least_one(broken: float) -> None:
    chosen = scheduler()
    asking(chosen, "r", 1)
    effects = chosen.apply(plan(chosen), scored(40, own=broken), 0.0)

    assert told(effects) == [(TokenLogprobs(LOGPROB_MIN, ((40, LOGPROB_MIN),)),)]
