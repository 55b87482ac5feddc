"""Reading drafts: every drafted token is looked at in the pass that extends the cache, by any engine.

A row with a draft of d tokens is looked at d + 1 times: where each drafted token is predicted, and behind
the last. A look is the row as it would be if it ended there, so an engine computes of it what it computes
of any row, constraints and draws included; `folded` gives each row its own again. Must not be asked of rows
that do not feed the token before their draft. Without a draft all of this is the rows themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from router_backend.scheduler.batch import DraftReading, FloatArray, IntArray, Row, StepOutput

COLUMNS = (
    *("logprobs", "entropy", "max_prob", "topk_ids", "topk_logits", "hidden"),
    *("top_ids", "top_logprobs"),
)
"""The columns of a `StepOutput` that have one line per row when they are there."""


def looks(rows: Sequence[Row]) -> Sequence[Row]:
    """The looks of sampling rows in order, each row's own end last; `rows` itself without a draft."""
    if not any(row.draft for row in rows):
        return rows
    return [
        row._replace(token_ids=row.token_ids[: len(row.token_ids) - back], draft=0)
        for row in rows
        for back in range(row.draft, -1, -1)
    ]


def looked_at(last: IntArray, rows: Sequence[Row]) -> IntArray:
    """int[looks]: index of each look's last token among packed ones, given that of each row, int[R]."""
    if not any(row.draft for row in rows):
        return last
    pairs = zip(last.tolist(), rows, strict=True)
    return np.concatenate([np.arange(end - row.draft, end + 1) for end, row in pairs])


def drafted(rows: Sequence[Row]) -> IntArray:
    """int[looks]: the drafted token behind each look; behind a row's own end there is none, and 0 stands."""
    tokens = [[*row.token_ids[len(row.token_ids) - row.draft :], 0] for row in rows]
    return np.array([token for line in tokens for token in line], dtype=np.int64)


def folded(rows: Sequence[Row], looked: StepOutput, nll: FloatArray) -> StepOutput:
    """What was computed of all looks, with `nll` float[looks] of the tokens behind, as the rows' output."""
    drafts = np.array([row.draft for row in rows], dtype=np.int64)
    ends = np.cumsum(drafts + 1) - 1
    places = np.minimum(np.arange(drafts.max()), drafts[:, None]) + (ends - drafts)[:, None]
    reading = DraftReading(
        looked.tokens[places],
        nll[places],
        _at(places, looked.logprobs),
        _at(places, looked.top_ids),
        _at(places, looked.top_logprobs),
    )
    picked = {name: _at(ends, getattr(looked, name)) for name in COLUMNS}
    scores = {head: score[ends] for head, score in looked.scores.items()}
    return replace(looked, tokens=looked.tokens[ends], scores=scores, draft=reading, **picked)


def _at(places: IntArray, column: npt.NDArray[Any] | None) -> Any:
    return None if column is None else column[places]
