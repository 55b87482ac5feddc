"""Draws one token per row.

Every draw is keyed by (seed, position, attempt, model), and each row takes the path that its own
parameters name, so a token never depends on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from python_backend.runner.torch_runner.constraints import constrained
from router_backend.core.counter_rng import uniforms
from router_backend.core.request import ModelIndex, Sampling
from router_backend.scheduler.batch import Row

TOKEN_TAG = 0
"""Tag of the draws that pick tokens; policies use others."""


def sample(logits: Tensor, logp: Tensor, rows: Sequence[Row], model: ModelIndex) -> Tensor:
    """int64[R]: one token per row out of raw `logits` [R, V]; `logp` are their log-probabilities."""
    chosen_from = constrained(logits, rows)
    tokens = chosen_from.argmax(dim=-1)
    drawn = [index for index, row in enumerate(rows) if not row.sampling.is_greedy]
    if drawn:
        tokens[drawn] = _draw(chosen_from[drawn], [rows[index] for index in drawn], model)
    return _mended(tokens, logits, logp)


def _draw(logits: Tensor, rows: Sequence[Row], model: ModelIndex) -> Tensor:
    vocab, device = logits.shape[-1], logits.device
    scaled = logits.double() / _column([row.sampling.temperature for row in rows], logits)
    draws = torch.from_numpy(_uniforms(rows, model)).to(device)
    is_filtered = np.array([_is_filtered(row.sampling, vocab) for row in rows])
    tokens = torch.empty(len(rows), dtype=torch.int64, device=device)
    plain, filtered = (
        torch.from_numpy(np.flatnonzero(picked)).to(device) for picked in (~is_filtered, is_filtered)
    )
    if len(plain):
        tokens[plain] = inverse_cdf(scaled[plain].softmax(dim=-1), draws[plain])
    if len(filtered):
        chosen = [rows[index] for index in filtered.tolist()]
        tokens[filtered] = _draw_filtered(scaled[filtered], chosen, draws[filtered])
    return tokens


def _is_filtered(sampling: Sampling, vocab: int) -> bool:
    return 0 < sampling.top_k < vocab or sampling.top_p < 1.0 or sampling.min_p > 0.0


def _draw_filtered(scaled: Tensor, rows: Sequence[Row], draws: Tensor) -> Tensor:
    """top_k and min_p, then top_p over what they left; equal logits rank by token id."""
    ranked, ids = scaled.sort(dim=-1, descending=True, stable=True)
    vocab = scaled.shape[-1]
    top_k = _column([row.sampling.top_k or vocab for row in rows], scaled)
    top_p = _column([row.sampling.top_p for row in rows], scaled)
    min_p = _column([row.sampling.min_p for row in rows], scaled)
    is_too_rare = ranked < ranked[:, :1] + min_p.log()
    is_too_rare |= torch.arange(vocab, device=scaled.device) >= top_k
    probs = ranked.masked_fill_(is_too_rare, -torch.inf).softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs
    is_left_out = before >= top_p
    is_left_out[:, 0] = False
    rank = inverse_cdf(probs.masked_fill(is_left_out, 0.0), draws)
    return ids.gather(1, rank[:, None])[:, 0]


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    """float64[R, 1] where `like` is."""
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]


def inverse_cdf(weights: Tensor, draws: Tensor) -> Tensor:
    """int64[R]: the first index whose cumulative weight exceeds draw * total; `weights` [R, V] >= 0."""
    cumulative = weights.cumsum(dim=-1)
    targets = draws * cumulative[:, -1]
    index = torch.searchsorted(cumulative, targets[:, None], right=True)[:, 0]
    return index.clamp_(max=weights.shape[-1] - 1)


def _uniforms(rows: Sequence[Row], model: ModelIndex) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    seeds = [row.sampling.seed for row in rows]
    positions = [row.end for row in rows]
    attempts = [row.attempt for row in rows]
    return uniforms(seeds, positions, attempts, int(model), TOKEN_TAG)


def _mended(tokens: Tensor, logits: Tensor, logp: Tensor) -> Tensor:
    """A row without a distribution gets its largest number; log_softmax spreads a NaN to the whole row."""
    is_broken = logp[:, 0].isnan()
    if bool(is_broken.any()):
        tokens[is_broken] = logits[is_broken].nan_to_num(nan=-torch.inf).argmax(dim=-1)
    return tokens
