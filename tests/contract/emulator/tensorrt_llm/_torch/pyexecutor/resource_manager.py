"""A KV cache manager that hands out its blocks in no particular order."""

from __future__ import annotations

import random

import torch

from tensorrt_llm.bindings import DataType
from tensorrt_llm.bindings.executor import KvCacheConfig
from tensorrt_llm.bindings.internal.batch_manager import CacheType
from tensorrt_llm.mapping import Mapping


class KVCacheManager:
    def __init__(
        self,
        kv_cache_config: KvCacheConfig,
        kv_cache_type: CacheType,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        tokens_per_block: int,
        max_seq_len: int,
        max_batch_size: int,
        mapping: Mapping,
        dtype: DataType,
    ) -> None:
        assert kv_cache_type is CacheType.SELF and not kv_cache_config.enable_block_reuse
        assert dtype is DataType.FLOAT and mapping.tp_size == 1
        assert kv_cache_config.max_tokens is not None
        blocks = kv_cache_config.max_tokens // tokens_per_block
        self.num_layers, self.tokens_per_block, self.max_batch_size = (
            num_layers,
            tokens_per_block,
            max_batch_size,
        )
        self.max_seq_len, self.max_blocks_per_seq = max_seq_len, -(-max_seq_len // tokens_per_block)
        self.pool = torch.full((blocks * num_layers * 2, num_kv_heads, tokens_per_block, head_dim), torch.nan)
        self.impl, self._free = Impl(self), random.Random(1).sample(range(blocks), blocks)
        self.held: dict[int, list[int]] = {}

    def add_dummy_requests(self, request_ids: list[int], token_nums: list[int]) -> None:
        assert len(request_ids) <= self.max_batch_size and max(token_nums) <= self.max_seq_len
        for name, tokens in zip(request_ids, token_nums, strict=True):
            count = -(-tokens // self.tokens_per_block)
            self.held[name], self._free = self._free[:count], self._free[count:]
            assert len(self.held[name]) == count, "out of blocks"

    def shutdown(self) -> None:
        self.held.clear()


class Impl:
    """The C++ object behind the manager."""

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager

    def copy_batch_block_offsets(
        self, output: torch.Tensor, request_ids: list[int], beam_width: int, offset: int
    ) -> None:
        assert (beam_width, offset) == (1, 0)
        for row, name in enumerate(request_ids):
            blocks = self._manager.held[name]
            keys = torch.tensor(blocks) * 2 * self._manager.num_layers
            output[0, row, :, : len(blocks)] = torch.stack([keys, keys + 1])
