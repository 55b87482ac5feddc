"""Tiny random Hugging Face directories of every architecture, written once per process and seed.

Weights are drawn wide enough that the largest logit stands clear of the second, so that greedy
answers compare token for token; random ids as prompts make every path of the forward count.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

EOS_ID = 1
FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@dataclass(frozen=True)
class TinyModel:
    """`fields` override the configuration; `shards` > 1 writes an index; ids below `words` have a token."""

    family: str = "llama"
    seed: int = 0
    words: int = 97
    vocab_rows: int = 97
    shards: int = 1
    fields: tuple[tuple[str, Any], ...] = field(default=())

    def config(self) -> Any:
        shape = {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "vocab_size": self.vocab_rows,
            "max_position_embeddings": 1024,
            "tie_word_embeddings": False,
            "initializer_range": 0.2,
            "bos_token_id": 0,
            "eos_token_id": EOS_ID,
        }
        return FAMILIES[self.family][0](**shape | thawed(self.fields))

    def network(self) -> PreTrainedModel:
        """A fresh float32 network in eval mode; norms and biases are random too."""
        generator = torch.Generator().manual_seed(self.seed)
        network: PreTrainedModel = FAMILIES[self.family][1](self.config()).eval()
        with torch.no_grad():
            for name, weight in network.named_parameters():
                middle = 1.0 if "norm" in name else 0.0
                width = 0.5 if "embed" in name or "lm_head" in name else 0.2
                weight.copy_(middle + width * torch.randn(weight.shape, generator=generator))
        return network


def frozen(**fields: Any) -> tuple[tuple[str, Any], ...]:
    """Keyword overrides as a hashable value for `TinyModel.fields`."""
    return tuple((name, json.dumps(value)) for name, value in sorted(fields.items()))


def thawed(fields: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {name: json.loads(value) for name, value in fields}


@cache
def tiny_model_dir(model: TinyModel) -> Path:
    """The directory of `model`, shared by all tests of this process; copy it before changing it."""
    root = Path(_root().name)
    return write_tiny_model(model, root / f"{model.family}-{len(list(root.iterdir()))}")


@cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tiny-models-")


def write_tiny_model(model: TinyModel, model_dir: Path) -> Path:
    """config.json, generation_config.json, safetensors and tokenizer.json of `model` in `model_dir`."""
    network = model.network()
    network.save_pretrained(model_dir)
    write_tokenizer(model_dir, model.words)
    if model.shards > 1:
        _split(model_dir, model.shards)
    return model_dir


def write_tokenizer(model_dir: Path, words: int) -> None:
    """A word-level tokenizer: <bos>, <eos>, then w2 w3 ... separated by spaces."""
    vocab = {"<bos>": 0, "<eos>": EOS_ID} | {f"w{index}": index for index in range(2, words)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.add_special_tokens(["<bos>", "<eos>"])
    tokenizer.save(str(model_dir / "tokenizer.json"))


def _split(model_dir: Path, shards: int) -> None:
    whole = model_dir / "model.safetensors"
    tensors = load_file(whole)
    weight_map = {name: f"part-{index % shards}.safetensors" for index, name in enumerate(sorted(tensors))}
    for file in sorted(set(weight_map.values())):
        save_file({name: tensors[name] for name in tensors if weight_map[name] == file}, model_dir / file)
    whole.unlink()
    index = {"metadata": {}, "weight_map": weight_map}
    (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
