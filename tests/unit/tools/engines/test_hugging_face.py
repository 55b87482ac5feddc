"""What a Hugging Face directory says before hours of building."""

from __future__ import annotations

from pathlib import Path

import pytest

from router_backend.core.errors import ConfigError
from tests.unit.tools.engines.directories import LARGE, SMALL, write
from tools.engines.hugging_face import problems, read_model, tensor_names


def test_the_numbers_of_the_two_models_are_those_of_the_memory_plan(tmp_path: Path) -> None:
    small, large = (
        read_model(write(tmp_path / name, fields)) for name, fields in (("s", SMALL), ("l", LARGE))
    )
    assert (small.converter, small.tap) == ("models/core/qwen/convert_checkpoint.py", "RoutedQWen")
    assert (small.kv_bytes(1), large.kv_bytes(1), large.kv_bytes(2)) == (114_688, 262_144, 131_072)
    assert [*problems(small, 1), *problems(large, 2)] == []


def test_the_size_of_a_head_follows_from_the_width_where_it_is_not_given(tmp_path: Path) -> None:
    fields = {key: value for key, value in SMALL.items() if key not in ("head_dim", "num_key_value_heads")}
    model = read_model(write(tmp_path / "s", {**fields, "model_type": "llama"}))
    assert (model.head_size, model.kv_heads, model.tap) == (64, 16, "RoutedLLaMA")


def test_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--model-dir: .*no is no Hugging Face directory"):
        read_model(tmp_path / "no")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config.json: not JSON"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({**SMALL, "model_type": "mamba"}, "model_type: 'mamba' is not one of qwen3, qwen2, llama"),
        ({"model_type": "qwen3", "num_attention_heads": 1}, "num_hidden_layers is missing"),
    ],
)
def test_what_config_json_lacks_is_named(fields: dict[str, object], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_model(write(tmp_path / "m", fields))


def test_a_tied_model_without_its_own_head_would_not_convert(tmp_path: Path) -> None:
    tied = read_model(write(tmp_path / "tied", SMALL, ("model.embed_tokens.weight",)))
    (problem,) = problems(tied, 1)
    assert "lm_head.weight is not in the safetensors" in problem
    untied = read_model(write(tmp_path / "untied", LARGE, ("model.embed_tokens.weight",)))
    assert list(problems(untied, 1)) == []


def test_missing_files_and_ranks_that_do_not_divide_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", SMALL)
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").unlink()
    found = list(problems(read_model(folder), 3))
    assert [line.rpartition(": ")[0].removeprefix(str(folder)) for line in found] == [
        " has no tokenizer.json",
        " has no *.safetensors",
        "--tp 3 does not divide num_attention_heads 16",
        "--tp 3 does not divide num_key_value_heads 8",
    ]


def test_names_of_tensors_come_from_the_headers_alone(tmp_path: Path) -> None:
    assert tensor_names(write(tmp_path / "m", SMALL, ("a", "b"))) == {"a", "b"}
