"""Stand-ins for what only a GPU has: a capture that repeats a call, and doubles of two attention libraries.

The doubles compute what the libraries document, slowly, out of the arguments that their callers pass.
"""

from __future__ import annotations

import importlib.machinery
import math
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from python_backend.runner.torch_runner.graphs import WARM_UP_RUNS, Run
from python_backend.runner.torch_runner.step_numbers import Columns


class RepeatedCalls:
    """Runs what it captured again and writes the numbers into the tensors of the capture, as a graph does."""

    def __init__(self) -> None:
        self.captures = 0

    def __call__(self, run: Run) -> Run:
        self.captures += 1
        for _ in range(WARM_UP_RUNS):
            run()
        kept = run()

        def replay() -> Columns:
            again = run()
            for target, source in zip(tensors(kept), tensors(again), strict=True):
                target.copy_(source)
            return kept

        return replay


def tensors(columns: Columns) -> list[Tensor]:
    assert columns.greedy is not None and columns.entropy is not None and columns.max_prob is not None
    assert columns.largest is not None
    named = (columns.hidden, columns.logits, columns.logp, columns.greedy, columns.entropy, columns.max_prob)
    return [*named, *columns.largest, *columns.scores.values()]


def attended(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """[W, H, D]: the last of `queries` [W, H, D] sees all of `keys` [L, K, D], each before it one less."""
    width, heads, dim = queries.shape
    shared = heads // keys.shape[1]
    keys, values = (part.repeat_interleave(shared, dim=1) for part in (keys, values))
    scores = torch.einsum("whd,lhd->hwl", queries, keys) / math.sqrt(dim)
    last = torch.arange(width) + len(keys) - width
    is_hidden = torch.arange(len(keys)) > last[:, None]
    weights = scores.masked_fill(is_hidden, -torch.inf).softmax(dim=-1).nan_to_num(0.0)
    return torch.einsum("hwl,lhd->whd", weights, values)


def flash_attn_with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, *, cache_seqlens: Tensor, block_table: Tensor, causal: bool
) -> Tensor:
    assert causal and cache_seqlens.dtype == block_table.dtype == torch.int32
    answers = []
    for queries, length, table in zip(q, cache_seqlens.tolist(), block_table.long(), strict=True):
        keys, values = (cache[table].flatten(0, 1)[:length] for cache in (k_cache, v_cache))
        answers.append(attended(queries, keys, values))
    return torch.stack(answers)


class PagedPrefill:
    """FlashInfer's `BatchPrefillWithPagedKVCacheWrapper` with buffers of fixed size."""

    def __init__(self, workspace: Tensor, kv_layout: str, *, use_cuda_graph: bool, **buffers: Tensor) -> None:
        assert kv_layout == "NHD" and use_cuda_graph and workspace.dtype == torch.uint8
        self._buffers = buffers

    def plan(
        self, qo_indptr: Tensor, indptr: Tensor, indices: Tensor, last: Tensor, *shape: int, **how: Any
    ) -> None:
        assert how.pop("causal") and set(how) == {"q_data_type"}
        names = ("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf")
        for name, given in zip(names, (qo_indptr, indptr, indices, last), strict=True):
            assert given.dtype == torch.int32 and len(given) <= len(self._buffers[name])
            self._buffers[name][: len(given)] = given
        self._page = shape[3]

    def run(self, q: Tensor, caches: tuple[Tensor, Tensor]) -> Tensor:
        cuts, pages, indices, last = (buffer.tolist() for buffer in self._buffers.values())
        answers = []
        for row in range(len(cuts) - 1):
            held = indices[pages[row] : pages[row + 1]]
            length = (len(held) - 1) * self._page + last[row]
            keys, values = (cache[torch.tensor(held)].flatten(0, 1)[:length] for cache in caches)
            answers.append(attended(q[cuts[row] : cuts[row + 1]], keys, values))
        return torch.cat(answers)


def install(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let `import name` find the double of that library."""
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    doubles = {
        "flash_attn_with_kvcache": flash_attn_with_kvcache,
        "BatchPrefillWithPagedKVCacheWrapper": PagedPrefill,
    }
    for key, double in doubles.items():
        setattr(module, key, double)
    monkeypatch.setitem(sys.modules, name, module)
