"""Rotation tables against transformers' own, and what rotation must keep."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from python_backend.runner.torch_runner.model_config import RopeConfig
from python_backend.runner.torch_runner.rope import rope_table, rotated
from tests.tiny_models import LLAMA3_ROPE, TinyModel, frozen

YARN_MSCALE = 0.1 * math.log(4.0) + 1.0
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 256,
    "beta_fast": 8.0,
}
KINDS = [
    ({"rope_type": "default", "rope_theta": 5e5}, RopeConfig(5e5)),
    (LINEAR_ROPE, RopeConfig(10000.0, "linear", 4.0)),
    (LLAMA3_ROPE, RopeConfig(10000.0, "llama3", 8.0, 1.0, 4.0, 64)),
    (
        YARN_ROPE,
        RopeConfig(1000.0, "yarn", 4.0, original_length=256, beta_fast=8.0, attention_factor=YARN_MSCALE),
    ),
    (
        YARN_ROPE | {"attention_factor": 0.9, "truncate": False},
        RopeConfig(1000.0, "yarn", 4.0, 1, 4, 256, beta_fast=8.0, attention_factor=0.9, is_truncated=False),
    ),
    (LINEAR_ROPE | {"rope_type": "dynamic"}, RopeConfig(10000.0)),
]


def turned(heads: torch.Tensor, positions: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    table = rope_table(rope, heads.shape[-1], int(positions.max()) + 1, heads.dtype)[positions]
    return rotated(heads, table[:, :1], table[:, 1:])


@pytest.mark.parametrize(("parameters", "rope"), KINDS, ids=[kind[0]["rope_type"] for kind in KINDS])
def test_every_kind_rotates_as_transformers_does(parameters: dict[str, object], rope: RopeConfig) -> None:
    config = TinyModel(fields=frozen(rope_parameters=parameters, head_dim=16)).config()
    heads = torch.randn(200, 3, 16, generator=torch.Generator().manual_seed(0))
    positions = torch.arange(200) * 5
    cos, sin = LlamaRotaryEmbedding(config)(heads, positions[None])
    expected, _ = apply_rotary_pos_emb(heads.transpose(0, 1)[None], heads.transpose(0, 1)[None], cos, sin)

    torch.testing.assert_close(turned(heads, positions, rope), expected[0].transpose(0, 1), rtol=0, atol=2e-5)


def test_rotation_keeps_lengths_and_sees_only_distances() -> None:
    query, key = torch.randn(2, 1, 1, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def score(at: int) -> torch.Tensor:
        here, there = torch.tensor([at]), torch.tensor([at + 7])
        return (turned(query, there, RopeConfig()) * turned(key, here, RopeConfig())).sum()

    torch.testing.assert_close(score(0), score(900), rtol=0, atol=1e-4)
    far = turned(query, torch.tensor([500]), RopeConfig())
    torch.testing.assert_close(far.norm(), query.norm(), rtol=0, atol=1e-5)


def test_position_zero_is_not_rotated() -> None:
    heads = torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(2))

    assert turned(heads, torch.tensor([0]), RopeConfig()).equal(heads)
