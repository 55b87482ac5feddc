"""What an engine is said to take is what it takes once it is loaded."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from python_backend.runner.torch_runner import linears
from python_backend.runner.torch_runner.footprint import (
    GPU_FORMATS,
    StepLimits,
    chosen_dtype,
    footprint,
    number_format,
)
from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.linears import PRECISIONS
from python_backend.runner.torch_runner.model import Model
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.torch_runner.weights import load_weights
from router_backend.core.errors import ConfigError
from tests.tiny_models import TinyModel, frozen, tiny_model_dir

WIDE = frozen(hidden_size=128, intermediate_size=256, num_attention_heads=8, head_dim=16)
"""Whole chunks of packed matrices, so that nothing is padded."""
MODELS = {
    "untied": TinyModel("llama", vocab_rows=128, words=128, fields=WIDE),
    "tied": TinyModel("qwen3", vocab_rows=128, words=128, fields=(*WIDE, *frozen(tie_word_embeddings=True))),
}
LIMITS = StepLimits(tokens=64, rows=8, length_max=512)


def held_bytes(things: Any) -> int:
    """Bytes of all arrays and tensors that can be reached, each memory once."""
    found: dict[int, int] = {}
    seen, left = set(), [things]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, type) or type(thing).__name__ in ("module", "dict_keys"):
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.Tensor):
            found[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        elif isinstance(thing, np.ndarray):
            owner = thing if thing.base is None else thing.base
            found[owner.ctypes.data] = owner.nbytes
        elif callable(getattr(thing, "__code__", None)) or type(thing).__name__ == "function":
            left += [cell.cell_contents for cell in thing.__closure__ or ()]
        else:
            left += [part for part in gc.get_referents(thing) if not isinstance(part, str | int | float)]
    return sum(found.values())


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_weights_and_kv_are_counted_as_they_lie_in_memory(model: TinyModel, dtype: str) -> None:
    config = load_model_config(tiny_model_dir(model))
    told = footprint(config, dtype, "cpu", LIMITS)
    precision = PRECISIONS[dtype]
    weights = load_weights(tiny_model_dir(model), config, precision, config.vocab_size)
    loaded = Model(config, weights, LIMITS.length_max)
    pool = KvPool(config, 10, 16, precision.cache)

    assert told.kv_bytes_per_token * 160 == pool.tensor.nbytes
    assert held_bytes([loaded.weights, loaded.rope]) == pytest.approx(told.weights, rel=0.05)


def test_a_wider_batch_takes_more_for_its_activations() -> None:
    config = load_model_config(tiny_model_dir(MODELS["untied"]))
    sizes = [
        footprint(config, "float32", "cpu", limits).activations
        for limits in (LIMITS, StepLimits(128, 8, 512), StepLimits(128, 16, 512), StepLimits(128, 16, 1024))
    ]

    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("dtype", "num_weights", "device", "chosen"),
    [
        ("auto", 1_000_000, "cpu", "float32"),
        ("auto", 16_777_216, "cpu", "float32"),
        ("auto", 16_777_217, "cpu", "float16"),
        ("auto", 5, "cuda:0", "bfloat16"),
        ("int8", 5, "cpu", "int8"),
    ],
)
def test_auto_keeps_small_models_exact_and_halves_large_ones(
    dtype: str, num_weights: int, device: str, chosen: str
) -> None:
    assert chosen_dtype(dtype, num_weights, device) == chosen


def test_a_format_that_a_device_lacks_is_refused_by_name(tmp_path: Path) -> None:
    config = load_model_config(tiny_model_dir(MODELS["untied"]))

    with pytest.raises(
        ConfigError, match="dtype: 'int8' is not one of auto, float32, bfloat16, float16 on cuda"
    ):
        number_format(config, "int8", "cuda:0")
    assert number_format(config, "auto", "cuda:0") == GPU_FORMATS["bfloat16"]


def test_every_number_format_of_the_engine_has_a_size() -> None:
    config = load_model_config(tiny_model_dir(MODELS["untied"]))
    sizes = {name: number_format(config, name, "cpu") for name in linears.PRECISIONS}

    assert {name: (size.activation_bytes, size.cache_bytes) for name, size in sizes.items()} == {
        name: (precision.activations.itemsize, precision.cache.itemsize)
        for name, precision in linears.PRECISIONS.items()
    }


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_narrow_weights_hold_twice_the_tokens_of_single_precision(dtype: str) -> None:
    config = load_model_config(tiny_model_dir(MODELS["untied"]))
    single, narrow = (footprint(config, name, "cpu", LIMITS) for name in ("float32", dtype))

    assert 2 * narrow.kv_bytes_per_token == single.kv_bytes_per_token
