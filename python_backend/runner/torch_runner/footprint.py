"""What a torch engine will take of its device, known before anything is loaded.

Reads shapes out of config.json, no weights; no torch, so that a tool or a front may ask. Weights and KV are
exact but for the padding of packed matrices; activations are those of the largest step, an upper estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from python_backend.runner.torch_runner.devices import CPU
from python_backend.runner.torch_runner.model_config import ModelConfig
from router_backend.core.errors import ConfigError

FLOAT32_BYTES_AUTO_MAX = 64 << 20
"""`auto` keeps models up to this size in float32: their weights stay in the cache, halves gain little."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Bytes of a packed weight, of an activation, and of a key or value in the KV cache."""

    weight_bytes: int
    activation_bytes: int
    cache_bytes: int
    is_packed: bool
    """The head is a copy of its own, also where the checkpoint ties it to the embedding."""


FORMATS = MappingProxyType(
    {
        "float32": NumberFormat(4, 4, 4, is_packed=True),
        "float64": NumberFormat(8, 8, 8, is_packed=False),
        "bfloat16": NumberFormat(2, 2, 2, is_packed=False),
        "float16": NumberFormat(2, 4, 2, is_packed=True),
        "int8": NumberFormat(1, 4, 2, is_packed=True),
    }
)
GPU_FORMATS = MappingProxyType(
    {
        "float32": NumberFormat(4, 4, 4, is_packed=False),
        "bfloat16": NumberFormat(2, 2, 2, is_packed=False),
        "float16": NumberFormat(2, 2, 2, is_packed=False),
    }
)
"""Plain products in the activations' own type: what a GPU's libraries are fast at."""


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The largest step: new tokens, rows, and positions of a row."""

    tokens: int
    rows: int
    length_max: int


def chosen_dtype(dtype: str, num_weights: int, device: str = CPU) -> str:
    """`dtype`, or what `auto` means for a model of so many weights."""
    if dtype != "auto":
        return dtype
    if device != CPU:
        return "bfloat16"
    return "float32" if 4 * num_weights <= FLOAT32_BYTES_AUTO_MAX else "float16"


@dataclass(frozen=True, slots=True)
class EngineBytes:
    weights: int
    activations: int
    kv_bytes_per_token: int


def footprint(config: ModelConfig, dtype: str, device: str, limits: StepLimits) -> EngineBytes:
    """Of one model in number format `dtype` (or auto); ConfigError for a format that the device lacks."""
    numbers = number_format(config, dtype, device)
    return EngineBytes(
        weight_bytes(config, numbers, limits.length_max),
        activation_bytes(config, numbers, limits),
        kv_bytes_per_token(config, numbers),
    )


def number_format(config: ModelConfig, dtype: str, device: str) -> NumberFormat:
    """What `dtype` means on `device`; ConfigError names those that it has."""
    formats = FORMATS if device == CPU else GPU_FORMATS
    try:
        return formats[chosen_dtype(dtype, config.num_weights, device)]
    except KeyError:
        known = ", ".join(["auto", *formats])
        raise ConfigError(f"dtype: {dtype!r} is not one of {known} on {device}") from None


def weight_bytes(config: ModelConfig, numbers: NumberFormat, length_max: int) -> int:
    """Embedding, layers, head and the table of positions."""
    embedding = config.vocab_rows * config.hidden_size * numbers.activation_bytes
    matrices = (config.num_weights - config.vocab_rows * config.hidden_size) * numbers.weight_bytes
    norms = (2 * config.num_layers + 1) * config.hidden_size * numbers.activation_bytes
    has_head = numbers.is_packed or not config.is_tied
    head = config.vocab_rows * config.hidden_size * numbers.weight_bytes if has_head else 0
    positions = 2 * length_max * config.head_dim * numbers.activation_bytes
    return embedding + matrices + norms + head + positions


def kv_bytes_per_token(config: ModelConfig, numbers: NumberFormat) -> int:
    """Keys and values of all layers."""
    return config.num_layers * _layer_kv_numbers(config) * numbers.cache_bytes


def activation_bytes(config: ModelConfig, numbers: NumberFormat, limits: StepLimits) -> int:
    """Temporary tensors: one layer's of all tokens, logits and what sampling makes of them for all rows, and
    one layer's keys and values of a row at its longest, gathered, and again as activations."""
    heads = config.num_heads + 2 * config.num_kv_heads
    per_token = 4 * config.hidden_size + 3 * heads * config.head_dim + 3 * config.intermediate_size
    per_row = config.vocab_rows * (numbers.activation_bytes + 4 + 8)
    copied_bytes = numbers.cache_bytes + numbers.activation_bytes
    gathered = limits.length_max * _layer_kv_numbers(config) * copied_bytes
    return limits.tokens * per_token * numbers.activation_bytes + limits.rows * per_row + gathered


def _layer_kv_numbers(config: ModelConfig) -> int:
    return 2 * config.num_kv_heads * config.head_dim
