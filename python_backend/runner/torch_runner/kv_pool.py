"""The keys and values of every sequence, in blocks that the scheduler hands out.

Owns the tensors and nothing else: which block belongs to whom is the block manager's. A slot is
block * block_size + offset. Nothing is ever cleared, so a reader must name only slots it wrote. What is
stored may be narrower than what is computed with: `write` rounds to the nearest, ties to even.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from python_backend.runner.torch_runner.model_config import ModelConfig


class KvPool:
    """`tensor` is [layers, 2, num_blocks, block_size, kv_heads, head_dim], keys before values."""

    __slots__ = ("_layers", "_scratch", "_whole", "block_size", "num_blocks", "tensor")

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        heads = (config.num_kv_heads, config.head_dim)
        shape = (config.num_layers, 2, num_blocks, block_size, *heads)
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        self.num_blocks, self.block_size = num_blocks, block_size
        slots = self.tensor.view(config.num_layers, 2, num_blocks * block_size, *heads)
        self._layers = [(layer[0], layer[1]) for layer in slots]
        self._scratch: dict[torch.dtype, tuple[Tensor, Tensor]] = {}
        # numpy knows no bfloat16, and no memory but the host's.
        has_arrays = dtype != torch.bfloat16 and self.tensor.device.type == "cpu"
        self._whole = self.tensor.numpy() if has_arrays else None

    def arrays(self, layer: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Keys and values [num_blocks, block_size, kv_heads, head_dim], the pool's own memory."""
        keys, values = self.whole[layer]
        return keys, values

    @property
    def whole(self) -> npt.NDArray[Any]:
        """`tensor` as numpy has it, the pool's own memory; only of a type and in a place that numpy knows."""
        assert self._whole is not None, f"numpy has no {self.tensor.dtype} on {self.tensor.device}"
        return self._whole

    def layer(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [num_blocks, block_size, kv_heads, head_dim], the pool's own memory."""
        return self.tensor[layer, 0], self.tensor[layer, 1]

    def gathered(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values at int64[R, S] slots, [R, S, kv_heads, head_dim], in memory of their own."""
        stored_keys, stored_values = self._layers[layer]
        return stored_keys[slots], stored_values[slots]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store [T, kv_heads, head_dim] at int64[T] slots."""
        stored_keys, stored_values = self._layers[layer]
        stored_keys.index_copy_(0, slots, keys.to(stored_keys.dtype))
        stored_values.index_copy_(0, slots, values.to(stored_values.dtype))

    def read(self, layer: int, slots: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values at int64[S] slots as `dtype`, each [S, kv_heads, head_dim]; valid until the next.

        One pair of buffers of a type serves every layer and step: fresh memory of this size costs more in
        page faults than the copy itself.
        """
        count = slots.shape[0]
        found = self._buffers(self.tensor.dtype, count)
        for stored, buffer in zip(self._layers[layer], found, strict=True):
            torch.index_select(stored, 0, slots, out=buffer)
        if dtype == self.tensor.dtype:
            return found
        keys, values = self._buffers(dtype, count)
        return keys.copy_(found[0]), values.copy_(found[1])

    def _buffers(self, dtype: torch.dtype, count: int) -> tuple[Tensor, Tensor]:
        pair = self._scratch.get(dtype)
        if pair is None or pair[0].shape[0] < count:
            shape = (1 << max(0, count - 1).bit_length(), *self.tensor.shape[-2:])
            pair = (self.tensor.new_empty(shape, dtype=dtype), self.tensor.new_empty(shape, dtype=dtype))
            self._scratch[dtype] = pair
        return pair[0][:count], pair[1][:count]
