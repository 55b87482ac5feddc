"""Rotary position embedding: tables made once, applied by two multiplications.

Angles are computed in float32 for every dtype, as transformers does; the pairs that rotate are
(i, i + D/2). Formulas: Su et al. 2021 (RoFormer); llama3 scaling: Llama 3.1's reference code.
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
    return _llama3(frequencies, rope) if rope.kind == "llama3" else frequencies


def _llama3(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Slow pairs are stretched by `factor`, fast ones kept, those between blended."""
    turns = rope.original_length * frequencies / (2 * math.pi)
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies


def rope_table(rope: RopeConfig, head_dim: int, length: int, dtype: torch.dtype) -> Tensor:
    """[length, 2, D]: the cosines, then the sines whose first half carries the rotation's minus sign."""
    angles = torch.outer(torch.arange(length).float(), inverse_frequencies(rope, head_dim))
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)], dim=1).to(dtype)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`heads` [T, N, D] turned to its positions; cos and sin are [T, 1, D] out of `rope_table`."""
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return torch.addcmul(heads * cos, swapped, sin)
