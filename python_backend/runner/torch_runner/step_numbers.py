"""From the hidden states and logits of a step to the numbers that leave the engine.

Every engine on torch tensors ends here, so that a token, a signal and a score mean the same on all of
them. All of it runs on the device of the logits; what is returned are a few numbers per row on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from python_backend.runner.heads.loading import HeadBook
from python_backend.runner.torch_runner import signals
from python_backend.runner.torch_runner.sampler import sample
from router_backend.core.request import ModelIndex
from router_backend.scheduler.batch import BatchPlan, Needs, Row, StepOutput


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """`model` keys the sampling draws."""

    heads: HeadBook
    model: ModelIndex

    def output(self, plan: BatchPlan, hidden: Tensor, logits: Tensor) -> StepOutput:
        """`hidden` [R, E] after the final norm and raw `logits` [R, V] of the plan's sampling rows.

        Columns of V are the vocabulary that is sampled. Nobody reads `hidden` unless the plan's needs ask
        for hidden states or heads.
        """
        logp = signals.log_probs(logits)
        tokens = sample(logits, logp, plan.sampling_rows, self.model)
        picked = logp.gather(1, tokens[:, None])[:, 0]
        scores = self._scores(plan.needs.heads, hidden, tokens, logits)
        columns = _signals(plan.needs, hidden, logits, logp)
        columns |= _alternatives(plan.sampling_rows, logp)
        return StepOutput(_host(tokens), _float32(picked), scores=scores, **columns)

    def _scores(
        self, names: tuple[str, ...], hidden: Tensor, tokens: Tensor, logits: Tensor
    ) -> dict[str, npt.NDArray[np.float32]]:
        if not names:
            return {}
        largest = signals.largest(logits, self.heads.topk(names))[1]
        scores = self.heads.scores(names, hidden, tokens, largest)
        return {name: _float32(score) for name, score in scores.items()}


def _signals(needs: Needs, hidden: Tensor, logits: Tensor, logp: Tensor) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if needs.entropy:
        columns["entropy"] = _float32(signals.entropy(logp))
    if needs.max_prob:
        columns["max_prob"] = _float32(signals.max_prob(logp))
    if needs.topk:
        ids, values = signals.largest(logits, needs.topk)
        columns |= {"topk_ids": _host(ids), "topk_logits": _float32(values)}
    if needs.hidden:
        columns["hidden"] = _float32(hidden)
    return columns


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
