"""What a Hugging Face directory says, and which of it is refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from python_backend.runner.torch_runner.model_config import (
    ModelConfig,
    RopeConfig,
    load_model_config,
    real_vocab_size,
)
from router_backend.core.errors import ConfigError
from tests.tiny_models import TinyModel, tiny_model_dir
from tests.unit.runner.torch_runner.directories import edit_json

LENGTH_MAX = 128
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
YARN_MSCALE = 0.1 * math.log(4.0) + 1.0
PLAIN: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": LENGTH_MAX,
}


def written(model_dir: Path, **fields: Any) -> Path:
    (model_dir / "config.json").write_text("{}")
    edit_json(model_dir / "config.json", **(PLAIN | fields))
    return model_dir


def test_a_sparse_llama_configuration_gets_the_defaults_of_transformers(tmp_path: Path) -> None:
    config = load_model_config(written(tmp_path))

    assert config == ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_rows=100,
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_layers=2,
        num_heads=4,
        num_kv_heads=4,
        head_dim=8,
        length_max=128,
        norm_eps=1e-6,
        rope=RopeConfig(),
        is_tied=None,
        has_qkv_bias=False,
        has_out_bias=False,
        has_qk_norm=False,
        eos_ids=frozenset(),
    )


@pytest.mark.parametrize(
    ("architecture", "attention_bias", "expected"),
    [
        ("LlamaForCausalLM", True, (True, True, False, 8)),
        ("Qwen2ForCausalLM", None, (True, False, False, 8)),
        ("Qwen3ForCausalLM", None, (False, False, True, 128)),
        ("Qwen3ForCausalLM", True, (True, True, True, 128)),
    ],
)
def test_each_architecture_has_its_own_biases_norms_and_head_size(
    tmp_path: Path, architecture: str, attention_bias: bool | None, expected: tuple[bool, bool, bool, int]
) -> None:
    fields = {"architectures": [architecture], "attention_bias": attention_bias}

    config = load_model_config(written(tmp_path, **fields))

    assert (config.has_qkv_bias, config.has_out_bias, config.has_qk_norm, config.head_dim) == expected


def test_what_transformers_writes_is_read() -> None:
    config = load_model_config(tiny_model_dir(TinyModel("qwen3")))

    assert (config.num_kv_heads, config.head_dim, config.is_tied, config.eos_ids) == (2, 8, False, {1})
    assert config.rope == RopeConfig(10000.0)


BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"factor": 8.0} | BANDS
LINEAR = {"type": "linear", "factor": 2}


@pytest.mark.parametrize(
    ("fields", "rope"),
    [
        ({"rope_theta": 5e5}, RopeConfig(5e5)),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 2e4}}, RopeConfig(2e4)),
        ({"rope_theta": 1e6, "rope_scaling": LINEAR}, RopeConfig(1e6, "linear", 2.0)),
        ({"rope_scaling": LINEAR | {"type": "dynamic"}}, RopeConfig(1e4)),
        (
            {"rope_scaling": YARN},
            RopeConfig(1e4, "yarn", 4.0, original_length=64, attention_factor=YARN_MSCALE),
        ),
        (
            {
                "rope_scaling": YARN
                | {"mscale": 2.0, "mscale_all_dim": 1.0, "beta_slow": 2, "truncate": False}
            },
            RopeConfig(
                1e4,
                "yarn",
                4.0,
                original_length=64,
                beta_slow=2.0,
                attention_factor=(0.2 * math.log(4.0) + 1.0) / YARN_MSCALE,
                is_truncated=False,
            ),
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 1.0}},
            RopeConfig(1e4, "yarn", original_length=LENGTH_MAX),
        ),
        (
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5} | LLAMA3},
            RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 64),
        ),
        (
            {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3"} | LLAMA3},
            RopeConfig(5e5, "llama3", 8.0, 1.0, 4.0, 64),
        ),
    ],
)
def test_rope_is_read_as_old_and_new_transformers_write_it(
    tmp_path: Path, fields: dict[str, Any], rope: RopeConfig
) -> None:
    assert load_model_config(written(tmp_path, **fields)).rope == rope


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel.*LlamaForCausalLM, Qwen2ForCausalLM"),
        ({"architectures": None, "model_type": "mamba"}, "mamba"),
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding-window"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide 4"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_type: 'longrope'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "key 'factor' is missing"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_size": None}, "key 'hidden_size' is missing"),
        ({"vocab_size": "many"}, "many"),
    ],
)
def test_what_the_forward_cannot_do_is_refused_by_file_and_name(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json: .*{message}"):
        load_model_config(written(tmp_path, **fields))


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[]", "expected a JSON object")])
def test_a_broken_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(ConfigError, match=rf"config\.json: {message}"):
        load_model_config(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: No such file"):
        load_model_config(tmp_path)


@pytest.mark.parametrize(
    ("own", "generation", "eos_ids"),
    [(2, None, {2}), ([2, 3], None, {2, 3}), (2, [5, 6], {5, 6}), (None, 7, {7}), (None, None, set())],
)
def test_end_tokens_come_from_generation_config_first(
    tmp_path: Path, own: Any, generation: Any, eos_ids: set[int]
) -> None:
    written(tmp_path, eos_token_id=own)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))

    assert load_model_config(tmp_path).eos_ids == eos_ids


@pytest.mark.parametrize(
    ("vocab", "added", "size"),
    [
        ({"a": 0, "b": 1}, [], 2),
        ({"a": 0, "b": 1}, [{"id": 5}], 6),
        ([["a", 0.0], ["b", -1.0], ["c", -2.0]], [], 3),
        ({"a": 120}, [], 100),
        ({}, [], 100),
    ],
)
def test_the_real_vocabulary_ends_at_the_largest_id_of_the_tokenizer(
    tmp_path: Path, vocab: Any, added: list[dict[str, int]], size: int
) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": added}))

    assert real_vocab_size(tmp_path, 100) == size


def test_without_a_tokenizer_every_row_is_a_token(tmp_path: Path) -> None:
    assert real_vocab_size(tmp_path, 100) == 100
