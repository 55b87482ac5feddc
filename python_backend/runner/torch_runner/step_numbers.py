"""From the hidden states and logits of a step to the numbers that leave the engine.

Every engine on torch tensors ends here, so that a token, a signal and a score mean the same on all of
them. All of it runs on the device of the logits; what is returned are a few numbers per row on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from python_backend.runner import drafts
from python_backend.runner.heads.loading import HeadBook
from python_backend.runner.torch_runner import signals
from python_backend.runner.torch_runner.sampler import sample
from router_backend.core.request import ModelIndex
from router_backend.scheduler.batch import BatchPlan, Needs, Row, StepOutput

TOPK_CAPTURED = 32
"""Largest logits that a captured graph keeps for policies; who wants more pays for them again."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What one pass yields for each row, still on the device. Without `greedy`, only hidden and logits."""

    hidden: Tensor
    logits: Tensor
    logp: Tensor
    greedy: Tensor | None = None
    """int64[R]: the likeliest token."""
    entropy: Tensor | None = None
    max_prob: Tensor | None = None
    largest: tuple[Tensor, Tensor] | None = None
    """Ids and raw logits of the largest ones, sorted downwards."""
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    """Of heads, for the greedy tokens."""

    def rows(self, picked: Sequence[int]) -> Columns:
        """Of these rows only."""
        where = torch.tensor(picked, dtype=torch.int64, device=self.hidden.device)

        def pick(column: Tensor) -> Tensor:
            return column.index_select(0, where)

        optional = (self.greedy, self.entropy, self.max_prob)
        greedy, entropy, max_prob = (None if column is None else pick(column) for column in optional)
        largest = None if self.largest is None else (pick(self.largest[0]), pick(self.largest[1]))
        scores = {name: pick(score) for name, score in self.scores.items()}
        wide = (pick(self.hidden), pick(self.logits), pick(self.logp))
        return Columns(*wide, greedy, entropy, max_prob, largest, scores)


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """`model` keys the sampling draws."""

    heads: HeadBook
    model: ModelIndex

    def output(self, plan: BatchPlan, hidden: Tensor, logits: Tensor) -> StepOutput:
        """`hidden` [R, E] after the final norm and raw `logits` [R, V] of the plan's sampling rows.

        Columns of V are the vocabulary that is sampled. Nobody reads `hidden` unless the plan's needs ask
        for hidden states or heads. Of rows with a draft, both hold one line per look (`drafts.looks`).
        """
        return self.finished(plan, Columns(hidden, logits, signals.log_probs(logits)))

    def every(self, hidden: Tensor, logits: Tensor) -> Columns:
        """All that any policy may ask, for greedy tokens, without a look at the host: fit to be captured."""
        logp = signals.log_probs(logits)
        greedy = logits.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf).argmax(dim=-1)
        names = tuple(sorted(self.heads.heads))
        largest = signals.largest(logits, max(TOPK_CAPTURED, self.heads.topk(names)))
        scores = self.heads.scores(names, hidden, greedy, largest[1])
        return Columns(
            hidden, logits, logp, greedy, signals.entropy(logp), signals.max_prob(logp), largest, scores
        )

    def finished(self, plan: BatchPlan, columns: Columns) -> StepOutput:
        """The plan's output; what `columns` lack is computed here."""
        rows, hidden, logits, logp = plan.sampling_rows, columns.hidden, columns.logits, columns.logp
        looks = drafts.looks(rows)
        is_captured = columns.greedy is not None and all(_is_greedy(row) for row in rows)
        tokens = columns.greedy if is_captured else sample(logits, logp, looks, self.model)
        assert tokens is not None
        picked = logp.gather(1, tokens[:, None])[:, 0]
        if is_captured and set(plan.needs.heads) <= columns.scores.keys():
            scores = {name: _float32(columns.scores[name]) for name in plan.needs.heads}
        else:
            scores = self._scores(plan.needs.heads, hidden, tokens, logits)
        named = _signals(plan.needs, columns) | _alternatives(looks, logp)
        output = StepOutput(_host(tokens), _float32(picked), scores=scores, **named)
        if looks is rows:
            return output
        behind = torch.from_numpy(drafts.drafted(rows)).to(logp.device)
        return drafts.folded(rows, output, _float32(-logp.gather(1, behind[:, None])[:, 0]))

    def _scores(
        self, names: tuple[str, ...], hidden: Tensor, tokens: Tensor, logits: Tensor
    ) -> dict[str, npt.NDArray[np.float32]]:
        if not names:
            return {}
        largest = signals.largest(logits, self.heads.topk(names))[1]
        scores = self.heads.scores(names, hidden, tokens, largest)
        return {name: _float32(score) for name, score in scores.items()}


def _is_greedy(row: Row) -> bool:
    return row.sampling.is_greedy and not row.sampling.is_constrained


def _signals(needs: Needs, columns: Columns) -> dict[str, Any]:
    named: dict[str, Any] = {}
    logp = columns.logp
    if needs.entropy:
        named["entropy"] = _float32(signals.entropy(logp) if columns.entropy is None else columns.entropy)
    if needs.max_prob:
        named["max_prob"] = _float32(signals.max_prob(logp) if columns.max_prob is None else columns.max_prob)
    if needs.topk:
        ids, values = _largest(columns, needs.topk)
        named |= {"topk_ids": _host(ids), "topk_logits": _float32(values)}
    if needs.hidden:
        named["hidden"] = _float32(columns.hidden)
    return named


def _largest(columns: Columns, count: int) -> tuple[Tensor, Tensor]:
    if columns.largest is None or columns.largest[0].shape[1] < min(count, columns.logits.shape[1]):
        return signals.largest(columns.logits, count)
    return columns.largest[0][:, :count], columns.largest[1][:, :count]


def _alternatives(rows: Sequence[Row], logp: Tensor) -> dict[str, Any]:
    """The likeliest tokens of the rows whose clients asked for some; other rows cost nothing."""
    counts = [row.sampling.logprobs or 0 for row in rows]
    asking = [index for index, count in enumerate(counts) if count]
    if not asking:
        return {}
    ids, values = signals.largest(logp[asking], max(counts))
    top_ids = np.zeros((len(rows), ids.shape[1]), dtype=np.int64)
    top_logprobs = np.zeros(top_ids.shape, dtype=np.float32)
    top_ids[asking], top_logprobs[asking] = _host(ids), _float32(values)
    return {"top_ids": top_ids, "top_logprobs": top_logprobs}


def _host(column: Tensor) -> npt.NDArray[np.int64]:
    array: npt.NDArray[np.int64] = column.cpu().numpy()
    return array


def _float32(column: Tensor) -> npt.NDArray[np.float32]:
    array: npt.NDArray[np.float32] = column.float().cpu().numpy()
    return array
