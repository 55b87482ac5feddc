"""What a deployment's `replicas` mean: names, devices, memory, one host's part, the planned thresholds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from python_backend.config import Deployment, parse_deployment
from python_backend.roles.adapting import shared
from python_backend.roles.memory import memory_plans, with_kv_tokens
from router_backend.core.errors import ConfigError
from router_backend.core.replicas import Replicas
from tests.tiny_models import TinyModel, tiny_model_dir
from tools.make_repository import repository_files
from tools.repository.part import write_part


def deployed(large: str, **settings: str) -> Deployment:
    lines = [f"models: [{{name: small}}, {{name: large, {large}}}]"]
    return parse_deployment("\n".join([*lines, *(f"{key}: {value}" for key, value in settings.items())]), "d")


def test_the_first_replica_has_the_models_name_and_the_others_its_number() -> None:
    found = deployed("replicas: 3")
    assert found.subservers == ("small", "large", "large_2", "large_3")
    assert found.endpoints == (*found.subservers, "token_router", "router")
    assert found.names == ("small", "large")
    assert [found.model_of(name) for name in found.subservers] == [0, 1, 1, 1]
    assert {"large_2/config.pbtxt", "large_3/config.pbtxt"} < set(repository_files(found))


def test_every_replica_may_have_a_device_of_its_own() -> None:
    found = deployed('replicas: 2, devices: ["cuda:0", "cuda:1"]')
    assert [found.served(name).device for name in found.subservers] == ["cpu", "cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("models", "complaint"),
    [
        ("[{name: a, replicas: 0}]", "models.0.replicas: Input should be greater than or equal to 1"),
        ("[{name: a, replicas: 2}, {name: a_2}]", "'a_2' would be a replica and another model: rename"),
        ("[{name: a, replicas: 2, devices: [cpu]}]", "devices: 1 for 2 replicas: name one for each"),
        (f"[{{name: {'a' * 63}, replicas: 2}}]", "is longer than 64 characters: shorten the model's name"),
        ("[{name: a, replicas: 2}]\nmode: step_sync", "replicas: mode step_sync knows one of each model"),
        (
            "[{name: a, replicas: 2}]\ntransport: tcp\naddresses: {a: '127.0.0.1:1'}",
            "addresses: 'a_2' is missing",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(models: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse_deployment(f"models: {models}", "deployment.yaml")


def test_a_memory_plan_counts_every_replica_on_a_device(tmp_path: Path) -> None:
    for name in ("small", "large"):
        shutil.copytree(tiny_model_dir(TinyModel("llama")), tmp_path / name / "1")
    budget = {"memory_budget": "5MiB"}
    (one,) = memory_plans(deployed("replicas: 1", **budget), tmp_path)
    found = deployed("replicas: 2", **budget)
    (two,) = memory_plans(found, tmp_path)

    assert [model.footprint.name for model in two.models] == ["small", "large", "large_2"]
    assert two.total <= 5 << 20 and two.models[0].kv_tokens < one.models[0].kv_tokens
    sizes = [model.kv_tokens for model in with_kv_tokens(found, (two,)).models]
    assert sizes == [two.models[0].kv_tokens] * 2


def test_the_part_of_a_host_with_another_replica_brings_the_weights_along(tmp_path: Path) -> None:
    source = tmp_path / "whole"
    (source / "large" / "1").mkdir(parents=True)
    (source / "large" / "1" / "model.safetensors").write_text("weights")
    text = "models: [{name: small}, {name: large, replicas: 2}]"
    (source / "deployment.yaml").write_text(text)
    files = repository_files(parse_deployment(text, "d"))
    write_part(source / "deployment.yaml", tmp_path / "part", ["large_2"], files)

    part = tmp_path / "part"
    assert (part / "large_2" / "1" / "model.safetensors").read_text() == "weights"
    assert not (part / "large").exists()
    found = parse_deployment((part / "deployment.yaml").read_text(), "d")
    assert found.model("large").model_dir == "large_2/1"


def test_a_plan_for_one_of_each_model_is_divided_among_replicas() -> None:
    table = ((1, 1), (2, 5), (3, 8))
    assert shared(table, Replicas((1, 1))) == table
    assert shared(table, Replicas((1, 2))) == ((1, 1), (2, 3), (3, 4))
