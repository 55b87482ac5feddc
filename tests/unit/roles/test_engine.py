"""From a deployment to an engine's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_backend.agreement import Agreement
from python_backend.config import parse_deployment
from python_backend.model_settings import ModelSettings
from python_backend.roles.engine import build_runner, engine_settings
from python_backend.runner.resuming import Resume
from python_backend.runner.scripted_runner import Script, ScriptedSettings
from python_backend.runner.torch_runner.settings import TorchSettings
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex


def test_a_torch_model_lives_in_its_own_folder_unless_told_otherwise() -> None:
    model = ModelSettings(name="large", dtype="bfloat16", threads=2, kv_tokens=640, length_max=99)
    moved_model = model.model_copy(update={"model_dir": "weights/x"})
    root = Path("/repository")
    settings, moved = (engine_settings(one, ModelIndex(1), root, 90) for one in (model, moved_model))

    assert settings == TorchSettings(root / "large/1", "bfloat16", 2, 640, 16, 99, 90, ModelIndex(1))
    assert moved.model_dir == Path("/repository/weights/x")


def test_an_engine_of_tensorrt_llm_lies_beside_its_tokenizer_unless_told_otherwise() -> None:
    model = ModelSettings(name="large", engine="trtllm", tensor_parallel=2, resume="align", batch_max=32)
    root = Path("/repository")
    settings = engine_settings(model, ModelIndex(1), root, 90)
    moved = engine_settings(model.model_copy(update={"engine_dir": "built/x"}), ModelIndex(1), root, 90)

    assert settings == TrtllmSettings(
        root / "large/1/engine",
        root / "large/1",
        kv_tokens=65536,
        batch_max=32,
        batch_tokens_max=512,
        block_size=16,
        vocab_size=90,
        model=ModelIndex(1),
        tensor_parallel=2,
        resume=Resume.ALIGN,
    )
    assert moved.engine_dir == Path("/repository/built/x")


def test_an_engine_that_runs_on_one_device_refuses_two() -> None:
    text = "models: [{name: small, engine: scripted, script: s.json, tensor_parallel: 2}]"
    with pytest.raises(ConfigError, match="tensor_parallel: the scripted engine of 'small' runs on one dev"):
        parse_deployment(text, "x")


def test_router_heads_lie_in_the_repository() -> None:
    model = ModelSettings(name="small", heads={"r2r": "heads/r2r", "citer": "small/citer"})
    settings = engine_settings(model, ModelIndex(0), Path("/repository"), 90)

    assert settings.heads == (
        ("citer", Path("/repository/small/citer")),
        ("r2r", Path("/repository/heads/r2r")),
    )


def test_a_scripted_engine_refuses_router_heads_by_name() -> None:
    text = "models: [{name: small, engine: scripted, script: s.json, heads: {citer: heads/citer}}]"
    with pytest.raises(ConfigError, match="heads: the scripted engine of 'small' cannot score citer"):
        parse_deployment(text, "x")


def test_a_scripted_model_reads_its_script(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text('{"vocab_size": 50, "salt": 3}')
    model = ModelSettings(name="small", engine="scripted", script="small.json", kv_tokens=640, length_max=99)

    assert engine_settings(model, ModelIndex(0), tmp_path, 50) == ScriptedSettings(
        Script(50, salt=3), 0, num_blocks=40, block_size=16, length_max=99
    )


def test_a_scripted_model_without_a_script_is_named() -> None:
    with pytest.raises(ConfigError, match=r"models\.small\.script: the scripted engine needs a JSON file"):
        engine_settings(ModelSettings(name="small", engine="scripted"), ModelIndex(0), Path("/repository"), 9)


def test_the_runner_of_a_model_knows_its_place(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"vocab_size": 50, "uncertain_p": 0.5}')
    models = ", ".join(f"{{name: {name}, engine: scripted, script: s.json}}" for name in "ab")
    deployment = parse_deployment(f"models: [{models}]", "x")
    first, second = (build_runner(deployment, name, tmp_path, Agreement(50)) for name in ("a", "b"))
    draws = [[one.is_uncertain_at(seed, 3) for seed in range(50)] for one in (first, second)]  # type: ignore[attr-defined]

    assert draws[0] != draws[1]


def test_the_ranks_of_an_engine_of_tensorrt_llm_begin_at_the_device_of_the_model() -> None:
    """Each replica on its own: a device that nobody heeds would put them all on the first GPUs."""
    text = (
        "models: [{name: large, engine: trtllm, tensor_parallel: 2, replicas: 2, "
        "devices: ['cuda:0', 'cuda:2']}, {name: small, engine: trtllm_torch}]"
    )
    deployment = parse_deployment(text, "x")
    firsts = {
        name: engine_settings(deployment.served(name), ModelIndex(0), Path("/repository"), 90).first_gpu
        for name in deployment.subservers
    }

    assert firsts == {"large": 0, "small": 0, "large_2": 2}
