"""Switches of the attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class AttentionRuntimeFeatures:
    chunked_prefill: bool = False
