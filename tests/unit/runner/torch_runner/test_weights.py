"""Tensors are found, checked and fused, or refused with file, name and shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from python_backend.runner.torch_runner.linears import PlainLinear, Precision
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.torch_runner.weights import ModelWeights, load_weights
from router_backend.core.errors import ConfigError
from tests.tiny_models import TinyModel, frozen, tiny_model_dir
from tests.unit.runner.torch_runner.directories import copied, edit_json

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


def loaded(model_dir: Path, vocab_size: int = 97, dtype: torch.dtype = torch.float32) -> ModelWeights:
    """Weights behind products that show them."""
    precision = Precision(dtype, PlainLinear, dtype)
    return load_weights(model_dir, load_model_config(model_dir), precision, vocab_size)


def changed(tmp_path: Path, **tensors: Tensor | None) -> Path:
    """A Llama directory with tensors replaced, added, or (None) removed; `__` in a name means a dot."""
    model_dir = copied(TinyModel(), tmp_path)
    file = model_dir / "model.safetensors"
    replaced = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    content = load_file(file) | replaced
    save_file({name: tensor for name, tensor in content.items() if tensor is not None}, file)
    return model_dir


def test_projections_that_are_read_together_are_fused() -> None:
    model_dir = tiny_model_dir(TinyModel("qwen3"))
    tensors = load_file(model_dir / "model.safetensors")

    layer = loaded(model_dir).layers[1]

    attention, mlp = "model.layers.1.self_attn.", "model.layers.1.mlp."
    assert layer.qkv.weight.equal(torch.cat([tensors[f"{attention}{name}_proj.weight"] for name in "qkv"]))
    assert layer.gate_up.weight.equal(
        torch.cat([tensors[f"{mlp}{name}_proj.weight"] for name in ("gate", "up")])
    )
    assert layer.qk_norm is not None and layer.qk_norm.shape == (6, 8)
    assert layer.qk_norm[3].equal(tensors[attention + "q_norm.weight"])
    assert layer.qk_norm[4].equal(tensors[attention + "k_norm.weight"])
    assert (layer.qkv.bias, layer.out.bias) == (None, None)


def test_qwen2_has_biases_on_queries_keys_and_values_alone() -> None:
    model_dir = tiny_model_dir(TinyModel("qwen2"))
    tensors = load_file(model_dir / "model.safetensors")

    layer = loaded(model_dir).layers[0]

    biases = [tensors[f"model.layers.0.self_attn.{name}_proj.bias"] for name in "qkv"]
    assert layer.qkv.bias is not None and layer.qkv.bias.equal(torch.cat(biases))
    assert layer.out.bias is None


def test_shards_hold_the_same_model_as_one_file() -> None:
    whole, sharded = loaded(tiny_model_dir(TinyModel())), loaded(tiny_model_dir(TinyModel(shards=3)))

    assert whole.head.weight.equal(sharded.head.weight)
    pairs = zip(whole.layers, sharded.layers, strict=True)
    assert all(
        left.qkv.weight.equal(right.qkv.weight) and left.down.weight.equal(right.down.weight)
        for left, right in pairs
    )


def test_the_head_holds_only_tokens_that_may_be_sampled_and_weights_the_wanted_type() -> None:
    weights = loaded(tiny_model_dir(TinyModel()), vocab_size=90, dtype=torch.float64)

    assert (weights.head.weight.shape, weights.embed.shape) == ((90, 32), (97, 32))
    assert {weights.head.weight.dtype, weights.layers[0].qkv.weight.dtype} == {torch.float64}


def test_a_tied_head_is_the_embedding() -> None:
    weights = loaded(tiny_model_dir(TinyModel(fields=frozen(tie_word_embeddings=True))))

    assert weights.head.weight.data_ptr() == weights.embed.data_ptr()


def test_where_the_configuration_is_silent_a_missing_head_means_tied(tmp_path: Path) -> None:
    model_dir = changed(tmp_path, lm_head__weight=None)
    edit_json(model_dir / "config.json", tie_word_embeddings=None)

    weights = loaded(model_dir)

    assert weights.head.weight.data_ptr() == weights.embed.data_ptr()


def test_a_missing_tensor_is_named_with_its_shape(tmp_path: Path) -> None:
    model_dir = changed(tmp_path, lm_head__weight=None)

    with pytest.raises(ConfigError, match=r"lm_head\.weight of shape \[97, 32\] is missing"):
        loaded(model_dir)


def test_a_wrong_shape_is_named_with_file_and_expectation(tmp_path: Path) -> None:
    model_dir = changed(tmp_path, **{Q_PROJ.replace(".", "__"): torch.zeros(30, 32)})

    expectation = rf"{Q_PROJ} has shape \[30, 32\], expected \[32, 32\]"
    with pytest.raises(ConfigError, match=rf"model\.safetensors: {expectation}"):
        loaded(model_dir)


def test_a_tensor_that_nobody_reads_is_an_error(tmp_path: Path) -> None:
    model_dir = changed(tmp_path, model__layers__0__self_attn__q_proj__bias=torch.zeros(32))

    with pytest.raises(ConfigError, match=r"q_proj\.bias is not a tensor of this architecture"):
        loaded(model_dir)


def test_rotary_tables_that_old_checkpoints_carry_are_passed_over(tmp_path: Path) -> None:
    model_dir = changed(tmp_path, model__layers__0__self_attn__rotary_emb__inv_freq=torch.zeros(4))

    assert loaded(model_dir).head.weight.shape == (97, 32)


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    file = copied(TinyModel(), tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:2000])

    with pytest.raises(ConfigError, match=r"model\.safetensors: not a readable safetensors file"):
        loaded(tmp_path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    model_dir = copied(TinyModel(shards=3), tmp_path)
    (model_dir / "part-1.safetensors").unlink()

    with pytest.raises(ConfigError, match=r"part-1\.safetensors"):
        loaded(model_dir)


def test_an_index_that_names_the_wrong_shard_is_told(tmp_path: Path) -> None:
    index = copied(TinyModel(shards=3), tmp_path) / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    wrong = next(file for file in sorted(weight_map.values()) if file != weight_map["model.norm.weight"])
    edit_json(index, weight_map=weight_map | {"model.norm.weight": wrong})

    with pytest.raises(ConfigError, match=rf"{wrong}: tensor model\.norm\.weight"):
        loaded(tmp_path)


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_a_broken_index_is_named(tmp_path: Path, text: str) -> None:
    (copied(TinyModel(), tmp_path) / "model.safetensors.index.json").write_text(text)

    with pytest.raises(ConfigError, match=r"index\.json: no usable weight_map"):
        loaded(tmp_path)


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    model_dir = copied(TinyModel(), tmp_path)
    (model_dir / "model.safetensors").rename(model_dir / "pytorch_model.bin")

    with pytest.raises(ConfigError, match="pickles are never read"):
        loaded(model_dir)
