"""Reads what a Hugging Face directory says about its model; refuses by name what the forward lacks.

Owns the meaning of config.json, generation_config.json and the size of tokenizer.json's vocabulary.
Must never guess: a field that would change the arithmetic is either understood or refused. No torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from router_backend.core.errors import ConfigError

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
ROPE_KINDS = ("default", "dynamic", "linear", "llama3", "yarn")
QWEN3_HEAD_DIM = 128
"""What Qwen3's configuration means when it does not say."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding; `kind` default, linear, llama3 or yarn."""

    theta: float = 10000.0
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    """llama3: pairs that turn less often than this over the original length are stretched by `factor`."""
    high_freq_factor: float = 4.0
    """llama3: pairs that turn more often are kept."""
    original_length: int = 8192
    beta_fast: float = 32.0
    """yarn: pairs that turn more often than this over the original length are kept."""
    beta_slow: float = 1.0
    """yarn: pairs that turn less often are stretched by `factor`."""
    attention_factor: float = 1.0
    """yarn: multiplies queries and keys."""
    is_truncated: bool = True
    """yarn: the two limits fall on whole pairs."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of one model. `vocab_rows` = rows of the embedding, `vocab_size` = the real vocabulary."""

    architecture: str
    vocab_rows: int
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    length_max: int
    norm_eps: float
    rope: RopeConfig
    is_tied: bool | None
    """None where config.json does not say: then tied if the checkpoint has no lm_head."""
    has_qkv_bias: bool
    has_out_bias: bool
    has_qk_norm: bool
    eos_ids: frozenset[int]

    def sharded(self, size: int) -> ModelConfig:
        """One of `size` equal shares of every layer; ConfigError where that does not go into whole heads."""
        for name in ("num_heads", "num_kv_heads", "intermediate_size"):
            if getattr(self, name) % size:
                raise ConfigError(f"tensor_parallel: {size} ranks cannot share {name} {getattr(self, name)}")
        return replace(
            self,
            num_heads=self.num_heads // size,
            num_kv_heads=self.num_kv_heads // size,
            intermediate_size=self.intermediate_size // size,
        )

    @property
    def num_weights(self) -> int:
        """Weights that one step reads: the layers' matrices and the head."""
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        layer = (attention + 3 * self.intermediate_size) * self.hidden_size
        return self.num_layers * layer + self.vocab_rows * self.hidden_size


def load_model_config(model_dir: Path) -> ModelConfig:
    """The configuration in `model_dir`; ConfigError names the file and the key."""
    path = model_dir / "config.json"
    fields = _read_json(path)
    try:
        return _parsed(fields, model_dir)
    except KeyError as error:
        raise ConfigError(f"{path}: key {error.args[0]!r} is missing") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error


def real_vocab_size(model_dir: Path, vocab_rows: int) -> int:
    """One more than the largest id that tokenizer.json can write, at most `vocab_rows` (embedding rows)."""
    path = model_dir / "tokenizer.json"
    if not path.exists():
        return vocab_rows
    tokenizer = _read_json(path)
    vocab = tokenizer.get("model", {}).get("vocab", {})
    ids = list(vocab.values()) if isinstance(vocab, dict) else list(range(len(vocab)))
    ids += [token["id"] for token in tokenizer.get("added_tokens", [])]
    return min(max(ids, default=vocab_rows - 1) + 1, vocab_rows)


def load_end_ids(model_dir: Path) -> frozenset[int]:
    """End tokens of a directory whose weights are not read here; ConfigError as for the configuration."""
    return _eos_ids(_read_json(model_dir / "config.json"), model_dir)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ConfigError(f"{path}: expected a JSON object")
    return fields


def _parsed(fields: Mapping[str, Any], model_dir: Path) -> ModelConfig:
    architecture = _architecture(fields)
    _refuse_unsupported(fields)
    has_bias = bool(fields.get("attention_bias", False))
    is_qwen2 = architecture == "Qwen2ForCausalLM"
    vocab_rows = int(fields["vocab_size"])
    heads = int(fields["num_attention_heads"])
    tied = fields.get("tie_word_embeddings")
    return ModelConfig(
        architecture=architecture,
        vocab_rows=vocab_rows,
        vocab_size=real_vocab_size(model_dir, vocab_rows),
        hidden_size=int(fields["hidden_size"]),
        intermediate_size=int(fields["intermediate_size"]),
        num_layers=int(fields["num_hidden_layers"]),
        num_heads=heads,
        num_kv_heads=_num_kv_heads(fields, heads),
        head_dim=_head_dim(fields, architecture),
        length_max=int(fields["max_position_embeddings"]),
        norm_eps=float(fields.get("rms_norm_eps", 1e-6)),
        rope=_rope(fields),
        is_tied=None if tied is None else bool(tied),
        has_qkv_bias=is_qwen2 or has_bias,
        has_out_bias=has_bias and not is_qwen2,
        has_qk_norm=architecture == "Qwen3ForCausalLM",
        eos_ids=_eos_ids(fields, model_dir),
    )


def _architecture(fields: Mapping[str, Any]) -> str:
    names = fields.get("architectures") or [fields.get("model_type", "none")]
    known = [name for name in names if name in ARCHITECTURES]
    if not known:
        raise ValueError(f"architectures: {names} is not supported; known are {', '.join(ARCHITECTURES)}")
    return str(known[0])


def _refuse_unsupported(fields: Mapping[str, Any]) -> None:
    if fields.get("hidden_act", "silu") != "silu":
        raise ValueError(f"hidden_act: {fields['hidden_act']!r} is not supported, only 'silu'")
    if fields.get("quantization_config"):
        raise ValueError("quantization_config: quantised weights are not supported")
    if fields.get("mlp_bias"):
        raise ValueError("mlp_bias: biases in the feed-forward layers are not supported")
    has_window = "sliding_attention" in (fields.get("layer_types") or ())
    if has_window or fields.get("use_sliding_window"):
        raise ValueError("use_sliding_window: sliding-window attention is not supported")


def _num_kv_heads(fields: Mapping[str, Any], heads: int) -> int:
    kv_heads = int(fields.get("num_key_value_heads") or heads)
    if heads % kv_heads:
        raise ValueError(f"num_key_value_heads: {kv_heads} does not divide {heads} attention heads")
    return kv_heads


def _head_dim(fields: Mapping[str, Any], architecture: str) -> int:
    if fields.get("head_dim"):
        return int(fields["head_dim"])
    if architecture == "Qwen3ForCausalLM":
        return QWEN3_HEAD_DIM
    return int(fields["hidden_size"]) // int(fields["num_attention_heads"])


def _rope(fields: Mapping[str, Any]) -> RopeConfig:
    """transformers 5 writes `rope_parameters`; before, `rope_theta` and `rope_scaling`."""
    params = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    theta = float(params.get("rope_theta") or fields.get("rope_theta") or 10000.0)
    kind = params.get("rope_type") or params.get("type") or "default"
    if params.get("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError("partial_rotary_factor: only 1.0 is supported")
    # dynamic changes the base only beyond the trained length, where no request is admitted.
    if kind in ("default", "dynamic"):
        return RopeConfig(theta)
    if kind == "linear":
        return RopeConfig(theta, kind, float(params["factor"]))
    if kind == "llama3":
        return _llama3_rope(theta, params)
    if kind == "yarn":
        return _yarn_rope(theta, params, int(fields["max_position_embeddings"]))
    raise ValueError(f"rope_type: {kind!r} is not supported; known are {', '.join(ROPE_KINDS)}")


def _llama3_rope(theta: float, params: Mapping[str, Any]) -> RopeConfig:
    return RopeConfig(
        theta,
        "llama3",
        float(params["factor"]),
        float(params["low_freq_factor"]),
        float(params["high_freq_factor"]),
        int(params["original_max_position_embeddings"]),
    )


def _yarn_rope(theta: float, params: Mapping[str, Any], length_max: int) -> RopeConfig:
    """Peng et al. 2023 (YaRN), with transformers' defaults."""
    original = int(params.get("original_max_position_embeddings") or length_max)
    factor = float(params.get("factor") or length_max / original)
    attention = params.get("attention_factor")
    if attention is None:
        over, under = float(params.get("mscale") or 0), float(params.get("mscale_all_dim") or 0)
        attention = _mscale(factor, over) / _mscale(factor, under) if over and under else _mscale(factor, 1.0)
    return RopeConfig(
        theta,
        "yarn",
        factor,
        original_length=original,
        beta_fast=float(params.get("beta_fast") or 32),
        beta_slow=float(params.get("beta_slow") or 1),
        attention_factor=float(attention),
        is_truncated=bool(params.get("truncate", True)),
    )


def _mscale(factor: float, strength: float) -> float:
    return 0.1 * strength * math.log(factor) + 1.0 if factor > 1 else 1.0


def _eos_ids(fields: Mapping[str, Any], model_dir: Path) -> frozenset[int]:
    """generation_config.json wins, as it does in transformers; the value is a number, a list or null."""
    path = model_dir / "generation_config.json"
    value = _read_json(path).get("eos_token_id") if path.exists() else None
    if value is None:
        value = fields.get("eos_token_id")
    if value is None:
        return frozenset()
    return frozenset(map(int, value)) if isinstance(value, list) else frozenset({int(value)})
