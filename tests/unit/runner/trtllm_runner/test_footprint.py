"""What an engine takes of its GPUs, counted by hand from its configuration and the sizes of its files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from python_backend.runner.torch_runner.footprint import EngineBytes, StepLimits
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.trtllm_runner.engine_config import load_engine_config
from python_backend.runner.trtllm_runner.footprint import engine_footprint, flow_footprint
from router_backend.core.errors import ConfigError
from tests.tiny_models import TinyModel, tiny_model_dir
from tests.unit.runner.trtllm_runner.test_engine_config import large, small, written

LIMITS = StepLimits(tokens=2048, rows=64, length_max=10240)
WORKSPACE = 1 << 30
OURS = 64 * (151936 * 16 + 4 * 10240)
"""Logits three times, and the capacity that the engine takes as an input."""


def engine(folder: Path, sizes: list[int]) -> Path:
    """Files of those sizes that take no room on the disk."""
    for rank, size in enumerate(sizes):
        with (folder / f"rank{rank}.engine").open("wb") as file:
            file.truncate(size)
    return folder


def test_one_rank_takes_its_file_and_the_keys_and_values_of_all_heads(tmp_path: Path) -> None:
    written(engine(tmp_path, [1_500_000_000]), small())

    found = engine_footprint(tmp_path, load_engine_config(tmp_path), 0, LIMITS, WORKSPACE)

    assert found == EngineBytes(1_500_000_000, WORKSPACE + OURS, 114_688)


def test_each_of_two_ranks_takes_its_own_file_and_half_of_the_heads(tmp_path: Path) -> None:
    config = load_engine_config(written(engine(tmp_path, [33_000, 32_000]), large()))

    found = [engine_footprint(tmp_path, config, rank, LIMITS, 0) for rank in (0, 1)]

    assert found == [EngineBytes(33_000, OURS, 131_072), EngineBytes(32_000, OURS, 131_072)]


def test_more_ranks_than_heads_keep_a_head_each(tmp_path: Path) -> None:
    config = replace(load_engine_config(written(engine(tmp_path, [1]), large())), tp_size=16)

    assert engine_footprint(tmp_path, config, 0, LIMITS, 0).kv_bytes_per_token == 64 * 2 * 1 * 128 * 2


def test_a_rank_without_its_file_is_named(tmp_path: Path) -> None:
    config = load_engine_config(written(engine(tmp_path, [1]), large()))

    with pytest.raises(ConfigError, match=r"rank1\.engine: No such file .* one file per rank"):
        engine_footprint(tmp_path, config, 1, LIMITS, 0)


def test_a_type_without_a_known_size_is_named(tmp_path: Path) -> None:
    config = replace(load_engine_config(written(engine(tmp_path, [1]), small())), dtype="float8")

    with pytest.raises(ConfigError, match="keys and values of type float8 are not one of float32, "):
        engine_footprint(tmp_path, config, 0, LIMITS, 0)


def test_the_pytorch_flow_takes_the_weights_as_they_are_stored() -> None:
    folder = tiny_model_dir(TinyModel("qwen3", 4, shards=2))
    config = load_model_config(folder)
    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))

    whole, half = (flow_footprint(folder, config, ranks, LIMITS, 5) for ranks in (1, 2))

    numbers = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    assert whole == EngineBytes(stored, 5 + 64 * config.vocab_rows * 16, 4 * numbers)
    assert half == replace(whole, weights=-(-stored // 2), kv_bytes_per_token=2 * numbers)


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    config = load_model_config(tiny_model_dir(TinyModel("qwen3", 4)))

    with pytest.raises(ConfigError, match=r"no \*\.safetensors with model\.embed_tokens\.weight"):
        flow_footprint(tmp_path, config, 1, LIMITS, 0)
