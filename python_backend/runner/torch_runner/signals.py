"""The numbers a policy asks for, from raw logits before any temperature or filter.

Float32 or wider. A column of -inf is an impossible token and adds nothing; a NaN anywhere in a row
makes that row's numbers NaN and no other's.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_probs(logits: Tensor) -> Tensor:
    """[R, V] at temperature 1, float32 (float64 for float64 logits)."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide, dim=-1)


def entropy(logp: Tensor) -> Tensor:
    """[R], nats; `logp` [R, V] are log-probabilities."""
    terms = logp.exp() * logp
    return -terms.masked_fill_(logp == -torch.inf, 0.0).sum(dim=-1)


def max_prob(logp: Tensor) -> Tensor:
    """[R]: probability of the likeliest token."""
    return logp.amax(dim=-1).exp()


def largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Ids and raw logits [R, min(count, V)] of the largest logits, sorted downwards."""
    top = torch.topk(logits, min(count, logits.shape[-1]), dim=-1)
    return top.indices, top.values
