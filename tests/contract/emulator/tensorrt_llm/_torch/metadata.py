"""What a step's rows have cached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class KVCacheParams:
    use_cache: bool
    num_cached_tokens_per_seq: list[int]
