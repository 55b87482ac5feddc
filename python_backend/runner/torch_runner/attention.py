"""Attention of packed tokens over paged keys and values: in place where that is compiled, else gathered.

Query heads that share a KV head are laid side by side as extra queries, so grouped-query attention
needs no copied keys; `pack` lays the mask the same way.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.packing import Group, PagedGroup
from python_backend.runner.torch_runner.table_attention import TableGroup
from router_backend.native import kernels

AnyGroup = Group | PagedGroup | TableGroup


def attend(queries: Tensor, pool: KvPool, layer: int, groups: tuple[AnyGroup, ...]) -> Tensor:
    """[T, H * D] out of `queries` [T, H, D]; the step's own keys are already in the pool."""
    parts = [_attended(queries[group.first : group.last], pool, layer, group) for group in groups]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attended(queries: Tensor, pool: KvPool, layer: int, group: AnyGroup) -> Tensor:
    if isinstance(group, TableGroup):
        return group.attention.attend(queries, pool, layer, group)
    if isinstance(group, Group):
        return attend_group(queries, pool, layer, group)
    native = kernels.compiled()
    assert native is not None, "rows were laid out for a loop that is not there"
    answer = queries.new_empty((queries.shape[0], queries.shape[1] * queries.shape[2]))
    call = (answer.numpy(), torch.get_num_threads())
    native.paged_attention(queries.contiguous().numpy(), *pool.arrays(layer), group.where, call)
    return answer


def attend_group(queries: Tensor, pool: KvPool, layer: int, group: Group) -> Tensor:
    """[rows * width, H * D] of one gathered group's `queries` [rows * width, H, D]."""
    rows, width = group.rows, group.width
    keys, values = pool.read(layer, group.slots, queries.dtype)
    kv_heads, head_dim = keys.shape[1:]
    shared = queries.shape[1] // kv_heads
    laid = queries.reshape(rows, width, kv_heads, shared, head_dim).permute(0, 2, 3, 1, 4)
    answer = scaled_dot_product_attention(
        laid.reshape(rows, kv_heads, shared * width, head_dim),
        keys.view(rows, -1, kv_heads, head_dim).transpose(1, 2),
        values.view(rows, -1, kv_heads, head_dim).transpose(1, 2),
        attn_mask=group.mask,
    )
    answer = answer.view(rows, kv_heads, shared, width, head_dim).permute(0, 3, 1, 2, 4)
    return answer.reshape(rows * width, -1)
