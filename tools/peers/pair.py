"""The pair that every system serves: random weights of the demo pair's shapes, with room for long texts.

Where accuracy does not matter, only shapes do: steps of a few milliseconds on a CPU, as a large model's on a
GPU. Weights are drawn from a fixed seed and never committed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tools.triton_layout import ROOT

NAMES = ("small", "large")
POSITIONS = 16_384
SHAPES = ROOT / "model_repository"
THIN = MappingProxyType({"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8})
"""Hardly any attention, everything else as it is: what is left grows with the text for other reasons."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two Hugging Face directories with one vocabulary."""

    small: Path
    large: Path

    @property
    def folders(self) -> dict[str, Path]:
        return dict(zip(NAMES, (self.small, self.large), strict=True))

    @property
    def vocab_size(self) -> int:
        return int(json.loads((self.small / "config.json").read_text())["vocab_size"])


def random_pair(folder: Path, changes: Mapping[str, int] = MappingProxyType({})) -> Pair:
    """Write the pair under `folder`; `changes` to the configuration of both."""
    small, large = (
        _write(SHAPES / name / "1", folder / name, seed, changes) for seed, name in enumerate(NAMES)
    )
    return Pair(small, large)


def _write(shape: Path, folder: Path, seed: int, changes: Mapping[str, int]) -> Path:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(shape, max_position_embeddings=POSITIONS, **changes)
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    for path in shape.glob("tokenizer*.json"):
        shutil.copy(path, folder)
    return folder
