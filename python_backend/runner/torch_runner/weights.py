"""Loads a model's tensors from safetensors shards and fuses the projections that are read together.

Must never unpickle. Every tensor is checked against the shape that the configuration implies, and
a tensor that nobody reads is an error: both would otherwise show as quietly wrong text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from python_backend.runner.torch_runner.linears import Linear, Packer, Precision
from python_backend.runner.torch_runner.model_config import ModelConfig
from router_backend.core.errors import ConfigError

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Share:
    """Which of how many ranks, and where it lives."""

    device: torch.device = CPU
    rank: int = 0
    size: int = 1


WHOLE = Share()


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer, or a rank's share. H heads, K KV heads, D head_dim, E hidden, F feed-forward."""

    input_norm: Tensor
    qkv: Linear
    """[T, E] to [T, (H + 2 K) * D]"""
    qk_norm: Tensor | None
    """[H + K, D]: the q norm repeated for each head, then the k norm."""
    out: Linear
    """[T, H * D] to [T, E]"""
    post_norm: Tensor
    gate_up: Linear
    """[T, E] to [T, 2 F]"""
    down: Linear
    """[T, F] to [T, E]"""


@dataclass(frozen=True, slots=True)
class ModelWeights:
    embed: Tensor
    """[vocab_rows, E]"""
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Linear
    """[R, E] to [R, vocab_size]: only rows that may be sampled."""


class Checkpoint:
    """Named tensors over one or many shards, each read once and converted to `dtype`."""

    def __init__(self, model_dir: Path, dtype: torch.dtype, share: Share = WHOLE) -> None:
        self._model_dir = model_dir
        self._dtype = dtype
        self.share = share
        self._files = _shards(model_dir)
        self._unread = set(self._files)

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def take_any(self, name: str, width: int) -> Tensor:
        """A matrix of `width` columns and any number of rows."""
        file = self._files.get(name)
        rows = 0 if file is None else _opened(file).get_slice(name).get_shape()[0]
        return self.take(name, rows, width)

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor; ConfigError names file, tensor and the expected shape."""
        file = self._files.get(name)
        if file is None:
            raise ConfigError(f"{self._model_dir}: tensor {name} of shape {list(shape)} is missing")
        tensor = _read(file, name)
        if tuple(tensor.shape) != shape:
            raise ConfigError(f"{file}: {name} has shape {list(tensor.shape)}, expected {list(shape)}")
        self._unread.discard(name)
        return tensor.to(self.share.device, self._dtype)

    def take_rows(self, name: str, *shape: int) -> Tensor:
        """This rank's outputs of the tensor."""
        return self.take(name, *shape).chunk(self.share.size)[self.share.rank]

    def take_columns(self, name: str, *shape: int) -> Tensor:
        """This rank's inputs of the tensor."""
        return self.take(name, *shape).chunk(self.share.size, dim=1)[self.share.rank].contiguous()

    def refuse_unread(self, *ignored: str) -> None:
        """ConfigError if a tensor was never taken, unless its name ends with one of `ignored`."""
        left = sorted(name for name in self._unread if not name.endswith(ignored))
        if left:
            raise ConfigError(f"{self._files[left[0]]}: {left[0]} is not a tensor of this architecture")


def stored_tensors(model_dir: Path) -> dict[str, Tensor]:
    """Every tensor by name, in the type in which it is stored, for engines that load weights themselves."""
    return {name: _read(file, name) for name, file in _shards(model_dir).items()}


def load_weights(
    model_dir: Path,
    config: ModelConfig,
    precision: Precision,
    vocab_size: int,
    share: Share = WHOLE,
) -> ModelWeights:
    """A rank's share of the layers, on its device; the head holds only the first `vocab_size` rows."""
    checkpoint, packed = Checkpoint(model_dir, precision.activations, share), precision.packed
    embed = checkpoint.take("model.embed_tokens.weight", config.vocab_rows, config.hidden_size)
    layers = tuple(_layer(checkpoint, config, layer, packed) for layer in range(config.num_layers))
    norm = checkpoint.take("model.norm.weight", config.hidden_size)
    is_tied = "lm_head.weight" not in checkpoint if config.is_tied is None else config.is_tied
    head = embed if is_tied else checkpoint.take("lm_head.weight", config.vocab_rows, config.hidden_size)
    checkpoint.refuse_unread("rotary_emb.inv_freq", "lm_head.weight")
    return ModelWeights(embed, layers, norm, packed(head[:vocab_size], None))


def _layer(checkpoint: Checkpoint, config: ModelConfig, layer: int, packed: Packer) -> LayerWeights:
    prefix, hidden, feed = f"model.layers.{layer}.", config.hidden_size, config.intermediate_size
    heads, mlp, has_out_bias = config.num_heads * config.head_dim, prefix + "mlp.", config.has_out_bias
    qkv_bias = _qkv(checkpoint, config, prefix, "bias") if config.has_qkv_bias else None
    out_bias = checkpoint.take(prefix + "self_attn.o_proj.bias", hidden) if has_out_bias else None
    if checkpoint.share.rank:
        out_bias = None  # added once, to the sum
    gate_up = [checkpoint.take_rows(f"{mlp}{name}_proj.weight", feed, hidden) for name in ("gate", "up")]
    return LayerWeights(
        input_norm=checkpoint.take(prefix + "input_layernorm.weight", hidden),
        qkv=packed(_qkv(checkpoint, config, prefix, "weight"), qkv_bias),
        qk_norm=_qk_norm(checkpoint, config, prefix) if config.has_qk_norm else None,
        out=packed(checkpoint.take_columns(prefix + "self_attn.o_proj.weight", hidden, heads), out_bias),
        post_norm=checkpoint.take(prefix + "post_attention_layernorm.weight", hidden),
        gate_up=packed(torch.cat(gate_up), None),
        down=packed(checkpoint.take_columns(mlp + "down_proj.weight", hidden, feed), None),
    )


def _qkv(checkpoint: Checkpoint, config: ModelConfig, prefix: str, part: str) -> Tensor:
    heads = {"q": config.num_heads, "k": config.num_kv_heads, "v": config.num_kv_heads}
    tail = (config.hidden_size,) if part == "weight" else ()
    return torch.cat(
        [
            checkpoint.take_rows(f"{prefix}self_attn.{name}_proj.{part}", count * config.head_dim, *tail)
            for name, count in heads.items()
        ]
    )


def _qk_norm(checkpoint: Checkpoint, config: ModelConfig, prefix: str) -> Tensor:
    q_norm = checkpoint.take(prefix + "self_attn.q_norm.weight", config.head_dim)
    k_norm = checkpoint.take(prefix + "self_attn.k_norm.weight", config.head_dim)
    heads, kv_heads = (count // checkpoint.share.size for count in (config.num_heads, config.num_kv_heads))
    return torch.cat([q_norm.expand(heads, -1), k_norm.expand(kv_heads, -1)])


def _shards(model_dir: Path) -> dict[str, Path]:
    """Tensor name -> file that holds it."""
    index = model_dir / "model.safetensors.index.json"
    if index.exists():
        try:
            names: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{index}: no usable weight_map: {error}") from error
        return {name: model_dir / file for name, file in names.items()}
    file = model_dir / "model.safetensors"
    if not file.exists():
        raise ConfigError(f"{model_dir}: neither {file.name} nor {index.name}; pickles are never read")
    with _opened(file) as shard:
        return dict.fromkeys(shard.keys(), file)


def _opened(file: Path) -> Any:
    try:
        return safe_open(str(file), framework="pt")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file}: not a readable safetensors file: {error}") from error


def _read(file: Path, name: str) -> Tensor:
    with _opened(file) as shard:
        try:
            tensor: Tensor = shard.get_tensor(name)
        except SafetensorError as error:
            raise ConfigError(f"{file}: tensor {name}: {error}") from error
    return tensor
