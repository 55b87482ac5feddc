"""The memory plan against what emulated engines really hold: the pool's bytes are the plan's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from python_backend.agreement import Agreement
from python_backend.config import Deployment, parse_deployment
from python_backend.roles.engine import build_runner
from python_backend.roles.memory import memory_plans
from python_backend.runner.trtllm_runner.runner import TrtllmRunner
from router_backend.core.errors import ConfigError
from tests.contract.emulated import Build, lay_out, use_emulator
from tests.tiny_models import TinyModel, frozen, tiny_model_dir

MODELS = {
    "small": (TinyModel("qwen3", seed=3), Build(tokens_per_block=4)),
    "large": (TinyModel("qwen3", 4, fields=frozen(num_hidden_layers=4)), Build(tokens_per_block=16)),
}


@pytest.fixture
def emulator() -> Iterator[None]:
    with use_emulator():
        yield


def deployed(repository: Path, budget: str) -> Deployment:
    for name, (model, build) in MODELS.items():
        lay_out(repository / name / "1", tiny_model_dir(model), build)
    small, large = (
        f"{{name: {name}, engine: trtllm, batch_max: 8, batch_tokens_max: 64, workspace: 1MiB}}"
        for name in MODELS
    )
    return parse_deployment(f"models: [{small}, {large}]\nmemory_budget: {budget}\n", "x")


def test_engines_hold_what_the_plan_says_in_blocks_of_their_own(tmp_path: Path, emulator: None) -> None:
    deployment = deployed(tmp_path, "4MiB")
    (plan,) = memory_plans(deployment, tmp_path)

    assert plan.device == "cuda:0" and plan.kv_tokens("small") == plan.kv_tokens("large") > 100
    for planned in plan.models:
        runner = build_runner(deployment, planned.footprint.name, tmp_path, Agreement(97))
        assert isinstance(runner, TrtllmRunner)
        assert runner.engine.pool.nbytes == planned.kv_bytes
        assert runner.info.num_blocks * runner.info.block_size == planned.kv_tokens
        runner.close()


def test_what_does_not_fit_is_refused_before_an_engine_is_opened(tmp_path: Path) -> None:
    """Without TensorRT-LLM at hand: nothing of it is asked for."""
    with pytest.raises(ConfigError, match=r"cuda:0 has 1\.00 MiB but needs at least 2\.\d\d MiB"):
        build_runner(deployed(tmp_path, "1MiB"), "small", tmp_path, Agreement(97))
