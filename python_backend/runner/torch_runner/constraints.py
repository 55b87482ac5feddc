"""What a client forbids or discourages, applied to the logits that a token is chosen from.

Penalties, biases and bans of one row read that row's committed tokens and nothing else, so they are the
same on every model and in any batch. Must never touch the raw logits: signals and reported
log-probabilities come from those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from router_backend.scheduler.batch import IntArray, Row

FORBIDDEN = -torch.inf


def constrained(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """[R, V]: `logits` themselves where no row asks for anything, else an edited copy."""
    asking = [index for index, row in enumerate(rows) if row.sampling.is_constrained]
    if not asking:
        return logits
    edited = logits.clone()
    for index in asking:
        _constrain(edited[index], rows[index])
    return edited


def _constrain(logits: Tensor, row: Row) -> None:
    """In place, `logits` [V] of one row; penalties first, bans last."""
    sampling = row.sampling
    written = np.asarray(row.history[: row.end], dtype=np.int64)
    _penalise(logits, written, row)
    for token, bias in sampling.logit_bias:
        if 0 <= token < len(logits):
            logits[token] += bias
    text = written.tolist()
    banned = [run[-1] for run in sampling.bad_words if _is_about_to_complete(run, text)]
    if len(written) - row.prompt_len < sampling.min_tokens:
        banned += row.stop_ids
    logits[_within(banned, len(logits))] = FORBIDDEN


def _penalise(logits: Tensor, written: IntArray, row: Row) -> None:
    sampling, vocab = row.sampling, len(logits)
    if sampling.repetition_penalty != 1.0:
        seen = _within(np.unique(written).tolist(), vocab)
        factor = sampling.repetition_penalty
        logits[seen] = torch.where(logits[seen] > 0, logits[seen] / factor, logits[seen] * factor)
    if sampling.presence_penalty or sampling.frequency_penalty:
        ids, counts = np.unique(written[row.prompt_len :], return_counts=True)
        ids, counts = ids[ids < vocab], counts[ids < vocab]
        penalty = sampling.presence_penalty + sampling.frequency_penalty * torch.from_numpy(counts)
        logits[torch.from_numpy(ids).to(logits.device)] -= penalty.to(logits)


def _is_about_to_complete(run: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether `tokens` end with all of `run` but its last."""
    head = list(run[:-1])
    return len(run) > 0 and (not head or list(tokens[-len(head) :]) == head)


def _within(ids: Iterable[int], vocab: int) -> Tensor:
    return torch.tensor([token for token in ids if 0 <= token < vocab], dtype=torch.int64)
