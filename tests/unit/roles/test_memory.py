"""One deployment, one plan per device, the same in every process."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from python_backend.agreement import Agreement
from python_backend.config import Deployment, parse_deployment
from python_backend.roles import memory
from python_backend.roles.engine import build_runner
from python_backend.roles.memory import KV_TOKENS_DEFAULT, memory_plans, with_kv_tokens
from router_backend.core.errors import ConfigError
from tests.tiny_models import TinyModel, frozen, tiny_model_dir

SMALL, LARGE = TinyModel("llama"), TinyModel("qwen3", 4, fields=frozen(num_hidden_layers=4))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, model in (("small", SMALL), ("large", LARGE)):
        shutil.copytree(tiny_model_dir(model), tmp_path / name / "1")
    return tmp_path


def deployment(budget: str, small: str = "", large: str = "") -> Deployment:
    return parse_deployment(
        f"models: [{{name: small{small}}}, {{name: large{large}}}]\n"
        f"front: {{live_max: 4}}\nmemory_budget: {budget}\n",
        "deployment.yaml",
    )


def kv_tokens(deployed: Deployment, repository: Path) -> list[int | None]:
    return [model.kv_tokens for model in with_kv_tokens(deployed, memory_plans(deployed, repository)).models]


def test_models_of_one_device_share_its_budget_equally(repository: Path) -> None:
    (plan,) = memory_plans(deployment("5MiB"), repository)
    tokens = [model.kv_tokens for model in plan.models]

    assert tokens[0] == tokens[1] > 1000
    assert plan.total <= 5 << 20 < plan.total + 16 * (256 + 512) * 2
    assert kv_tokens(deployment("5MiB"), repository) == tokens


def test_room_for_every_live_request_at_its_longest_is_enough(repository: Path) -> None:
    assert kv_tokens(deployment("8GiB"), repository) == [4096, 4096]  # 4 requests of 1024 positions


def test_without_a_budget_nothing_is_checked(repository: Path) -> None:
    deployed = deployment("''", ", kv_tokens: 640")

    assert kv_tokens(deployed, repository) == [640, KV_TOKENS_DEFAULT]
    assert [plan.budget for plan in memory_plans(deployed, repository)] == [None]


def test_a_pool_that_the_deployment_fixes_keeps_its_size(repository: Path) -> None:
    assert kv_tokens(deployment("8GiB", ", kv_tokens: 640"), repository) == [640, 4096]


def test_every_device_has_a_budget_of_its_own(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "usable_bytes", lambda device: {"cuda:0": 64 << 20}[device])
    plans = memory_plans(deployment('{cpu: 32MiB, "cuda:0": auto}', large=", device: cuda"), repository)

    assert [(plan.device, plan.budget) for plan in plans] == [("cpu", 32 << 20), ("cuda:0", 64 << 20)]


def test_ranks_on_gpus_take_a_share_of_each_and_the_least_room_counts(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "usable_bytes", lambda device: {"cuda:0": 4 << 20, "cuda:1": 2 << 20}[device])
    deployed = deployment("auto", ", device: cuda", ", device: cuda, tensor_parallel: 2")
    first, second = memory_plans(deployed, repository)

    assert [model.footprint.name for model in first.models] == ["small", "large"]
    assert [model.footprint.name for model in second.models] == ["large"]
    whole = memory_plans(deployment("auto", ", device: cuda", ", device: cuda"), repository)[0].models[1]
    assert 2 * second.models[0].footprint.kv_bytes_per_token == whole.footprint.kv_bytes_per_token
    least = min(first.kv_tokens("large"), second.kv_tokens("large"))
    assert kv_tokens(deployed, repository) == [first.kv_tokens("small"), least]


def test_ranks_on_one_cpu_take_as_much_of_it_together(repository: Path) -> None:
    alone, shared = (
        memory_plans(deployment("''", large=f", tensor_parallel: {size}"), repository)[0].models[1].footprint
        for size in (1, 2)
    )
    assert shared.kv_bytes_per_token == alone.kv_bytes_per_token
    assert shared.weights > alone.weights  # embedding and head are whole on every rank


def test_what_does_not_fit_keeps_the_server_from_starting(repository: Path) -> None:
    with pytest.raises(ConfigError, match=r"memory_budget: cpu has 1.00 MiB but needs at least"):
        build_runner(deployment("1MiB"), "small", repository, Agreement(97))


def test_a_scripted_engine_takes_no_part(tmp_path: Path) -> None:
    text = "models: [{name: one, engine: scripted, script: s.json}]\nmemory_budget: 1KiB"
    deployed = parse_deployment(text, "x")

    assert memory_plans(deployed, tmp_path) == ()
    assert kv_tokens(deployed, tmp_path) == [KV_TOKENS_DEFAULT]


def test_the_engine_gets_the_planned_pool_and_says_so(
    repository: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        runner = build_runner(deployment("5MiB"), "large", repository, Agreement(97))

    (plan,) = memory_plans(deployment("5MiB"), repository)
    assert runner.info.num_blocks * runner.info.block_size == plan.kv_tokens("large")
    assert [
        record.message for record in caplog.records if record.name.endswith("roles.engine")
    ] == plan.lines()
    runner.close()
