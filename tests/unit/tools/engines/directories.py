"""Hugging Face directories of Qwen3-0.6B and Qwen3-32B as far as a build reads them: numbers, no weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SMALL = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_size": 1024,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}
LARGE = {
    **SMALL,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "hidden_size": 5120,
    "tie_word_embeddings": False,
}


def write(folder: Path, fields: dict[str, Any], tensors: tuple[str, ...] = ("lm_head.weight",)) -> Path:
    """A directory with config.json, a tokenizer's name and a safetensors header."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(fields))
    (folder / "tokenizer.json").write_text("{}")
    header = json.dumps({"__metadata__": {}, **{name: {} for name in tensors}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return folder
