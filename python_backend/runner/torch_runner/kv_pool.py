"""The keys and values of every sequence, in blocks that the scheduler hands out.

Owns the tensors and nothing else: which block belongs to whom is the block manager's. A slot is
block * block_size + offset. Nothing is ever cleared, so a reader must name only slots it wrote.
"""

from __future__ import annotations

import torch
from torch import Tensor

from python_backend.runner.torch_runner.model_config import ModelConfig


class KvPool:
    """`tensor` is [layers, 2, num_blocks, block_size, kv_heads, head_dim], keys before values."""

    __slots__ = ("_layers", "block_size", "num_blocks", "tensor")

    def __init__(self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype) -> None:
        heads = (config.num_kv_heads, config.head_dim)
        self.tensor = torch.zeros((config.num_layers, 2, num_blocks, block_size, *heads), dtype=dtype)
        self.num_blocks, self.block_size = num_blocks, block_size
        slots = self.tensor.view(config.num_layers, 2, num_blocks * block_size, *heads)
        self._layers = [(layer[0], layer[1]) for layer in slots]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store [T, kv_heads, head_dim] at int64[T] slots."""
        stored_keys, stored_values = self._layers[layer]
        stored_keys.index_copy_(0, slots, keys)
        stored_values.index_copy_(0, slots, values)

    def read(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values at int64[S] slots, each [S, kv_heads, head_dim]."""
        stored_keys, stored_values = self._layers[layer]
        return stored_keys.index_select(0, slots), stored_values.index_select(0, slots)
