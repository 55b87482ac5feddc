"""Attention of a rectangle of new tokens over block tables, in shapes that a graph can hold.

One of three: FlashInfer's paged kernels, flash-attn's (blocks of a multiple of 256), or torch's product over
gathered blocks, which needs nothing installed. Only the last one has run: the others follow the documented
calls of their libraries and are tested against a double of them; no GPU was at hand.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from python_backend.runner.torch_runner.buckets import Bucket, Padded
from python_backend.runner.torch_runner.kv_pool import KvPool
from router_backend.core.errors import ConfigError

FLASH_ATTN_BLOCK = 256
WORKSPACE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class TableGroup:
    """The rows of one step, all of the same width; the tensors keep their place from step to step."""

    attention: TableAttention
    bucket: Bucket
    tables: Tensor
    """int64[B, C]"""
    ends: Tensor
    """int64[B]"""
    positions: Tensor
    """int64[B * W]"""
    first: int = 0

    @property
    def last(self) -> int:
        return self.bucket.rows * self.bucket.width


class TableAttention(Protocol):
    """One installed way to attend; one object serves every shape of one engine."""

    is_length_bound: bool
    """It reads whole tables: see `buckets.Tables`."""

    def prepare(self, bucket: Bucket, step: Padded) -> None:
        """Called on the host before every step, outside the graph."""
        ...

    def attend(self, queries: Tensor, pool: KvPool, layer: int, group: TableGroup) -> Tensor:
        """[B * W, H * D] out of `queries` [B * W, H, D]; inside the graph."""
        ...


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one rank's share of the attention."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype
    device: torch.device


@dataclass(slots=True)
class GatheredAttention:
    """torch's own product over keys and values copied together; queries of a KV head side by side."""

    shape: Shape
    is_length_bound: bool = True

    def prepare(self, bucket: Bucket, step: Padded) -> None:
        return None

    def attend(self, queries: Tensor, pool: KvPool, layer: int, group: TableGroup) -> Tensor:
        (rows, width, columns), shape = group.bucket, self.shape
        places = torch.arange(columns * shape.block_size, device=queries.device)
        slots = (group.tables[:, :, None] * shape.block_size + places[: shape.block_size]).flatten(1)
        # A slot beyond a row's end may hold anything, and not a number times nothing is not a number.
        slots = torch.where(places < group.ends[:, None], slots, slots[:, :1])
        keys, values = (part.to(queries.dtype) for part in pool.gathered(layer, slots))
        shared = shape.num_heads // shape.num_kv_heads
        laid = queries.reshape(rows, width, shape.num_kv_heads, shared, shape.head_dim).permute(0, 2, 3, 1, 4)
        is_seen = places <= group.positions.view(rows, 1, width, 1)
        answer = scaled_dot_product_attention(
            laid.reshape(rows, shape.num_kv_heads, shared * width, shape.head_dim),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=is_seen.repeat(1, 1, shared, 1),
        )
        answer = answer.view(rows, shape.num_kv_heads, shared, width, shape.head_dim)
        return answer.permute(0, 3, 1, 2, 4).reshape(rows * width, -1)


@dataclass(slots=True)
class FlashAttention:
    """flash-attn's `flash_attn_with_kvcache`: reads the blocks in place, as far as each row goes."""

    shape: Shape
    is_length_bound: bool = False
    call: Callable[..., Any] = field(init=False)

    def __post_init__(self) -> None:
        if self.shape.block_size % FLASH_ATTN_BLOCK:
            size = self.shape.block_size
            raise ConfigError(f"attention: flash_attn needs block_size a multiple of 256, not {size}")
        self.call = import_module("flash_attn").flash_attn_with_kvcache

    def prepare(self, bucket: Bucket, step: Padded) -> None:
        return None

    def attend(self, queries: Tensor, pool: KvPool, layer: int, group: TableGroup) -> Tensor:
        """Its mask puts the last query at the row's end, as tokens stand in a bucket."""
        rows, width, _ = group.bucket
        answer = self.call(
            queries.reshape(rows, width, self.shape.num_heads, self.shape.head_dim),
            *pool.layer(layer),
            cache_seqlens=group.ends.int(),
            block_table=group.tables.int(),
            causal=True,
        )
        laid: Tensor = answer.reshape(rows * width, -1)
        return laid


@dataclass(slots=True)
class FlashInferAttention:
    """FlashInfer's paged prefill kernels: one wrapper with buffers of its own for each captured shape."""

    shape: Shape
    is_length_bound: bool = False
    _library: Any = field(init=False)
    _workspace: Tensor = field(init=False)
    _wrappers: dict[Bucket, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._library = import_module("flashinfer")
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=self.shape.device)

    def prepare(self, bucket: Bucket, step: Padded) -> None:
        """Its plan copies what the kernels read into the wrapper's buffers."""
        shape, size = self.shape, self.shape.block_size
        counts = -(-step.ends // size)
        used = np.arange(bucket.columns) < counts[:, None]
        self._wrapper(bucket).plan(
            torch.arange(bucket.rows + 1, dtype=torch.int32) * bucket.width,
            torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int32)),
            torch.from_numpy(step.tables[used].astype(np.int32)).to(shape.device),
            torch.from_numpy(((step.ends - 1) % size + 1).astype(np.int32)),
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_dim,
            size,
            causal=True,
            q_data_type=shape.dtype,
        )

    def attend(self, queries: Tensor, pool: KvPool, layer: int, group: TableGroup) -> Tensor:
        answer = self._wrapper(group.bucket).run(queries.contiguous(), pool.layer(layer))
        laid: Tensor = answer.reshape(queries.shape[0], -1)
        return laid

    def _wrapper(self, bucket: Bucket) -> Any:
        if bucket not in self._wrappers:
            self._wrappers[bucket] = self._library.BatchPrefillWithPagedKVCacheWrapper(
                self._workspace,
                "NHD",
                use_cuda_graph=True,
                qo_indptr_buf=self._indices(bucket.rows + 1),
                paged_kv_indptr_buf=self._indices(bucket.rows + 1),
                paged_kv_indices_buf=self._indices(bucket.rows * bucket.columns),
                paged_kv_last_page_len_buf=self._indices(bucket.rows),
            )
        return self._wrappers[bucket]

    def _indices(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int32, device=self.shape.device)


ATTENTIONS: MappingProxyType[str, Callable[[Shape], TableAttention]] = MappingProxyType(
    {"flashinfer": FlashInferAttention, "flash_attn": FlashAttention, "sdpa": GatheredAttention}
)


def table_attention(name: str, shape: Shape) -> TableAttention:
    """By name; `auto` is the first that is installed and takes such blocks. ConfigError if it is missing."""
    if name != "auto":
        if name != "sdpa" and not _is_installed(name):
            raise ConfigError(f"attention: {name} is not installed; install it, or set attention: sdpa")
        return ATTENTIONS[name](shape)
    if _is_installed("flashinfer"):
        return FlashInferAttention(shape)
    if _is_installed("flash_attn") and shape.block_size % FLASH_ATTN_BLOCK == 0:
        return FlashAttention(shape)
    return GatheredAttention(shape)


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
