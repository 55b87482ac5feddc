"""A Hugging Face directory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ModelConfig:
    checkpoint_dir: str

    @classmethod
    def from_pretrained(cls, checkpoint_dir: str) -> ModelConfig:
        return cls(checkpoint_dir)
