"""The metadata of a step, and what an attention kernel makes of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from paging import PagedStep

from tensorrt_llm._torch.attention_backend.interface import AttentionRuntimeFeatures
from tensorrt_llm._torch.metadata import KVCacheParams
from tensorrt_llm._torch.pyexecutor.resource_manager import KVCacheManager
from tensorrt_llm.mapping import Mapping


@dataclass(kw_only=True, eq=False)
class Metadata:
    seq_lens: torch.Tensor
    num_contexts: int
    kv_cache_params: KVCacheParams
    max_num_requests: int
    max_num_tokens: int
    kv_cache_manager: KVCacheManager
    request_ids: list[int]
    prompt_lens: list[int]
    mapping: Mapping
    runtime_features: AttentionRuntimeFeatures
    is_prepared: bool = False

    def prepare(self) -> None:
        rows = len(self.seq_lens)
        assert rows <= self.max_num_requests and self.seq_lens.sum() <= self.max_num_tokens
        assert self.seq_lens.dtype == torch.int32 and len(self.prompt_lens) == len(self.request_ids) == rows
        shape = (1, self.max_num_requests, 2, self.kv_cache_manager.max_blocks_per_seq)
        self.host_kv_cache_block_offsets = torch.zeros(shape, dtype=torch.int32)
        self.kv_cache_manager.impl.copy_batch_block_offsets(
            self.host_kv_cache_block_offsets, self.request_ids, 1, 0
        )
        self.kv_cache_block_offsets = self.host_kv_cache_block_offsets.clone()
        self.is_prepared = True


class MetadataStep(PagedStep):
    """A step as the kernel sees it."""

    def __init__(self, metadata: Metadata, input_ids: torch.Tensor, position_ids: torch.Tensor) -> None:
        manager, offsets = metadata.kv_cache_manager, metadata.kv_cache_block_offsets
        assert torch.equal(offsets, metadata.host_kv_cache_block_offsets)
        self.tokens, self.positions = input_ids.long(), position_ids.long()
        self.counts = metadata.seq_lens.tolist()
        cached = metadata.kv_cache_params.num_cached_tokens_per_seq
        self.lengths = [had + count for had, count in zip(cached, self.counts, strict=True)]
        self.types = [int(row >= metadata.num_contexts) for row in range(len(self.counts))]
        assert all(count == 1 for count, kind in zip(self.counts, self.types, strict=True) if kind)
        self.keys, self.values = offsets[0].long().unbind(1)
        self.pool, self.places = manager.pool, list(range(manager.num_layers))
        chunked = metadata.runtime_features.chunked_prefill
        self.plan = {"tokens_per_block": manager.tokens_per_block, "use_paged_context_fmha": chunked}


class TrtllmAttention:
    Metadata = Metadata


def get_attention_backend(backend_name: str) -> type[TrtllmAttention]:
    assert backend_name == "TRTLLM"
    return TrtllmAttention
