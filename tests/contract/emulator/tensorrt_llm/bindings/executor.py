"""Settings of the C++ side."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class KvCacheConfig:
    enable_block_reuse: bool = True
    max_tokens: int | None = None
