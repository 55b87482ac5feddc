"""TensorRT-LLM engines in the memory plan: the published pair on two GPUs of 80 GB, and beside torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from python_backend.config import Deployment, parse_deployment
from python_backend.roles.memory import memory_plans, with_kv_tokens
from router_backend.core.errors import ConfigError
from tests.tiny_models import TinyModel, tiny_model_dir
from tests.unit.runner.trtllm_runner.test_engine_config import large, small, written
from tests.unit.runner.trtllm_runner.test_footprint import engine

GIB = 1 << 30
SMALL_BYTES, LARGE_BYTES = int(1.4 * GIB), int(30.5 * GIB)
LOGITS = 64 * (151936 * 16 + 4 * 10240)
"""Of the largest step, and the capacity that an engine takes as an input."""


def write_published_pair(repository: Path) -> Path:
    """Qwen3-0.6B and 32B, the large one on two ranks: configurations, and files that take no room."""
    for name, config, sizes in (("small", small(), [SMALL_BYTES]), ("large", large(), [LARGE_BYTES] * 2)):
        folder = repository / name / "1" / "engine"
        folder.mkdir(parents=True)
        written(engine(folder, sizes), config)
    return repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return write_published_pair(tmp_path)


def deployment(budget: str, small: str = "", large: str = "") -> Deployment:
    return parse_deployment(
        f"models: [{{name: small, engine: trtllm{small}}}, "
        f"{{name: large, engine: trtllm, tensor_parallel: 2{large}}}]\nmemory_budget: {budget}\n",
        "deployment.yaml",
    )


def test_engines_get_the_same_number_of_tokens_beside_their_files(repository: Path) -> None:
    first, second = memory_plans(deployment("71GiB"), repository)

    left = 71 * GIB - SMALL_BYTES - LARGE_BYTES - 2 * (GIB + LOGITS)
    tokens = left // (32 * (114_688 + 131_072)) * 32
    assert [(model.footprint.name, model.kv_tokens) for model in first.models] == [
        ("small", tokens),
        ("large", tokens),
    ]
    assert (first.device, second.device) == ("cuda:0", "cuda:1")
    assert [model.footprint.name for model in second.models] == ["large"]
    assert second.kv_tokens("large") == tokens < second.share  # alone there, but a pool has one size
    assert "tokens (as on its fullest device) x 131072 B" in second.lines()[1]
    sizes = with_kv_tokens(deployment("71GiB"), (first, second)).models
    assert [model.kv_tokens for model in sizes] == [tokens, tokens]


def test_an_engine_that_does_not_fit_is_refused_with_the_sum(repository: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        memory_plans(deployment("32GiB", large=", workspace: 2GiB"), repository)

    assert str(refusal.value) == (
        "TR_CONFIG: memory_budget: cuda:0 has 32.00 GiB but needs at least 35.20 GiB "
        "(small: weights 1.40 GiB + activations 1.15 GiB; large: weights 30.50 GiB + activations 2.15 GiB; "
        "KV of 32 tokens for each of 2 models: 7.50 MiB); "
        "raise memory_budget, lower kv_tokens, or choose a narrower dtype"
    )


def test_tokens_that_a_deployment_fixes_are_counted_with_the_engines_blocks(repository: Path) -> None:
    first, second = memory_plans(deployment("''", ", kv_tokens: 131072", ", kv_tokens: 131072"), repository)

    assert [model.kv_bytes for model in first.models] == [14 * GIB, 16 * GIB]
    assert [model.kv_bytes for model in second.models] == [16 * GIB]


def test_a_torch_model_on_the_same_gpu_gets_as_many_tokens(repository: Path) -> None:
    shutil.copytree(tiny_model_dir(TinyModel("llama")), repository / "draft" / "1")
    text = (
        "models: [{name: draft, device: 'cuda:0', block_size: 24}, {name: small, engine: trtllm}]\n"
        "front: {live_max: 4000}\nmemory_budget: 8GiB\n"
    )
    (plan,) = memory_plans(parse_deployment(text, "x"), repository)

    draft, engines = plan.models
    assert draft.kv_tokens == engines.kv_tokens > 10_000
    assert draft.kv_tokens % (3 * 32) == 0  # whole blocks of 24 and of 32


def test_the_pytorch_flow_takes_part_with_the_weights_as_stored(tmp_path: Path) -> None:
    folder = tiny_model_dir(TinyModel("llama"))
    shutil.copytree(folder, tmp_path / "one" / "1")
    text = "models: [{name: one, engine: trtllm_torch, workspace: 1MiB}]\nmemory_budget: 8MiB\n"
    (plan,) = memory_plans(parse_deployment(text, "x"), tmp_path)

    stored = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert (plan.device, plan.models[0].footprint.weights) == ("cuda:0", stored)
    assert plan.models[0].footprint.activations > 1 << 20


def test_a_workspace_that_is_no_size_is_named(repository: Path) -> None:
    with pytest.raises(ConfigError, match="workspace of large: 'lots' is not a size such as 8GiB or 512MiB"):
        memory_plans(deployment("71GiB", large=", workspace: lots"), repository)
