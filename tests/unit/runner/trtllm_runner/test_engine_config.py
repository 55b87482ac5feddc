"""What trtllm-build writes, read without TensorRT-LLM; each flag that breaks the contract by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from python_backend.runner.trtllm_runner.engine_config import EngineConfig, config_faults, load_engine_config
from router_backend.core.errors import ConfigError

PLUGINS = {
    "gpt_attention_plugin": "bfloat16",
    "gemm_plugin": "bfloat16",
    "remove_input_padding": True,
    "context_fmha": True,
    "use_paged_context_fmha": True,
    "tokens_per_block": 32,
    "multiple_profiles": False,
}
SIZES = {"max_batch_size": 64, "max_num_tokens": 8192, "max_seq_len": 10240, "max_beam_width": 1}


def fields(model: dict[str, Any], tp_size: int) -> dict[str, Any]:
    mapping = {"world_size": tp_size, "tp_size": tp_size, "pp_size": 1, "cp_size": 1}
    shared = {"architecture": "Qwen3ForCausalLM", "dtype": "bfloat16", "vocab_size": 151936, "head_size": 128}
    build = {**SIZES, "kv_cache_type": "PAGED", "gather_context_logits": False, "plugin_config": PLUGINS}
    return {
        "version": "1.2.1",
        "pretrained_config": {**shared, **model, "mapping": mapping},
        "build_config": json.loads(json.dumps(build)),
    }


def small() -> dict[str, Any]:
    """Qwen3-0.6B on one GPU."""
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    return fields({"hidden_size": 1024, "num_hidden_layers": 28, **heads}, 1)


def large() -> dict[str, Any]:
    """Qwen3-32B on two."""
    heads = {"num_attention_heads": 64, "num_key_value_heads": 8}
    return fields({"hidden_size": 5120, "num_hidden_layers": 64, **heads}, 2)


def written(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_two_published_engines_are_understood(tmp_path: Path) -> None:
    found = load_engine_config(written(tmp_path, small()))
    assert found == EngineConfig("1.2.1", 28, 16, 8, 128, 1024, 151936, "bfloat16", 1, 64, 8192, 10240, 32)
    assert found.blocks_per_row_max == 320
    both = load_engine_config(written(tmp_path, large()))
    assert (both.tp_size, both.num_layers, both.rank_kv_heads) == (2, 64, 4)


BREACHES = {
    "plugin_config.use_paged_context_fmha": (False, "--use_paged_context_fmha enable"),
    "plugin_config.remove_input_padding": (False, "--remove_input_padding enable"),
    "plugin_config.context_fmha": (False, "--context_fmha enable"),
    "plugin_config.gpt_attention_plugin": (None, "--gpt_attention_plugin bfloat16"),
    "plugin_config.multiple_profiles": (True, "--multiple_profiles disable"),
    "plugin_config.user_buffer": (True, "--user_buffer disable"),
    "kv_cache_type": ("CONTINUOUS", "--kv_cache_type paged"),
    "max_beam_width": (4, "--max_beam_width 1"),
    "gather_context_logits": (True, "no --gather_context_logits"),
}


@pytest.mark.parametrize("key", BREACHES)
def test_a_flag_that_breaks_the_contract_is_named_with_its_cure(key: str) -> None:
    config, (value, cure) = small(), BREACHES[key]
    *way, last = key.split(".")
    place = config["build_config"]
    for name in way:
        place = place[name]
    place[last] = value

    (fault,) = config_faults(config)
    assert fault.startswith(f"{last}: {str(value).lower()}; build with ") and cure in fault


def test_pipeline_parallel_and_quantised_caches_are_refused() -> None:
    config = small()
    config["pretrained_config"]["mapping"]["pp_size"] = 2
    config["pretrained_config"]["quantization"] = {"kv_cache_quant_algo": "FP8"}
    pipeline, cache = config_faults(config)
    assert "--pp_size 1" in pipeline
    assert cache.startswith("kv_cache_quant_algo: fp8")


def test_a_release_may_write_the_cache_type_with_its_class() -> None:
    config = small()
    config["build_config"]["kv_cache_type"] = "KVCacheType.PAGED"
    assert config_faults(config) == []


def test_a_folder_without_an_engine_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config.json: .*python -m tools.build_engine"):
        load_engine_config(tmp_path)


def test_files_that_are_something_else_are_named(tmp_path: Path) -> None:
    config = small()
    del config["pretrained_config"]["num_hidden_layers"]
    with pytest.raises(ConfigError, match="not what trtllm-build writes: KeyError"):
        load_engine_config(written(tmp_path, config))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        load_engine_config(tmp_path)
