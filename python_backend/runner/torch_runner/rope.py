"""Rotary position embedding: tables made once, applied by two multiplications.

Angles are computed in float32 for every dtype, as transformers does; the pairs that rotate are
(i, i + D/2). Formulas: Su et al. 2021 (RoFormer); llama3 scaling: Llama 3.1's reference code;
yarn: Peng et al. 2023.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from python_backend.runner.torch_runner.model_config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """float32[D/2]: radians per position of each rotating pair."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "yarn":
        return _yarn(frequencies, rope, head_dim)
    return _llama3(frequencies, rope) if rope.kind == "llama3" else frequencies


def _llama3(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Slow pairs are stretched by `factor`, fast ones kept, those between blended."""
    turns = rope.original_length * frequencies / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies


def _yarn(frequencies: Tensor, rope: RopeConfig, head_dim: int) -> Tensor:
    """As llama3, but blended evenly over the pairs between two that turn beta_fast and beta_slow times."""
    low, high = (_pair_that_turns(turns, rope, head_dim) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.is_truncated:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    pairs = torch.arange(head_dim // 2, dtype=torch.float32)
    stretched = ((pairs - low) / (high - low if high != low else 0.001)).clamp(0.0, 1.0)
    return frequencies / rope.factor * stretched + frequencies * (1 - stretched)


def _pair_that_turns(turns: float, rope: RopeConfig, head_dim: int) -> float:
    """Index of the pair that turns so often over the original length."""
    return head_dim * math.log(rope.original_length / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))


def rope_table(rope: RopeConfig, head_dim: int, length: int, dtype: torch.dtype) -> Tensor:
    """[length, 2, D]: the cosines, then the sines whose first half carries the rotation's minus sign."""
    angles = torch.outer(torch.arange(length).float(), inverse_frequencies(rope, head_dim))
    cos, sin = rope.attention_factor * angles.cos(), rope.attention_factor * angles.sin()
    return torch.stack([torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)], dim=1).to(dtype)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`heads` [T, N, D] turned to its positions; cos and sin are [T, 1, D] out of `rope_table`."""
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return torch.addcmul(heads * cos, swapped, sin)
