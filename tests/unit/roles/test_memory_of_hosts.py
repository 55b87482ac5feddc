"""Every replica is counted on its own device of its own host, and nobody asks what another host has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from python_backend.config import Deployment, parse_deployment
from python_backend.roles import memory
from python_backend.roles.memory import host_of, memory_plans, with_kv_tokens
from tests.tiny_models import TinyModel, tiny_model_dir

ADDRESSES = {"small": "10.0.0.1:1", "large": "10.0.0.1:2", "large_2": "10.0.0.2:1", "large_3": "10.0.0.2:2"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for seed, name in enumerate(("small", "large")):
        shutil.copytree(tiny_model_dir(TinyModel("llama", seed)), tmp_path / name / "1")
    return tmp_path


def deployment(budget: str, more: str = "", large: str = "") -> Deployment:
    text = f"models: [{{name: small}}, {{name: large, replicas: 3{large}}}]\nmemory_budget: {budget}\n{more}"
    return parse_deployment(text, "deployment.yaml")


def far(budget: str, large: str = "") -> Deployment:
    addresses = ", ".join(f"{name}: '{address}'" for name, address in ADDRESSES.items())
    return deployment(budget, f"transport: tcp\ninsecure: true\naddresses: {{{addresses}}}\n", large)


def seated(deployed: Deployment, repository: Path, host: str | None = None) -> dict[str, list[str]]:
    plans = memory_plans(deployed, repository, host)
    return {plan.device: [model.footprint.name for model in plan.models] for plan in plans}


def test_replicas_of_one_device_are_added_together(repository: Path) -> None:
    assert seated(deployment("64MiB"), repository) == {"cpu": ["small", "large", "large_2", "large_3"]}


def test_replicas_on_other_gpus_take_of_those(repository: Path) -> None:
    devices = ", devices: ['cuda:0', 'cuda:1', 'cuda:1']"

    assert seated(deployment("64MiB", large=devices), repository) == {
        "cpu": ["small"],
        "cuda:0": ["large"],
        "cuda:1": ["large_2", "large_3"],
    }


def test_replicas_on_other_hosts_take_of_those(repository: Path) -> None:
    assert seated(far("64MiB"), repository) == {
        "cpu of 10.0.0.1": ["small", "large"],
        "cpu of 10.0.0.2": ["large_2", "large_3"],
    }
    assert seated(far("64MiB"), repository, "10.0.0.2") == {"cpu of 10.0.0.2": ["large_2", "large_3"]}


def test_a_host_with_more_room_uses_it(repository: Path) -> None:
    """Whoever starts there knows nothing of the others."""
    deployed = far("{cpu: 4MiB, 'cuda:0': 64MiB}", ", devices: ['cpu', 'cuda:0', 'cuda:0']")
    near, wide = memory_plans(deployed, repository)

    assert near.kv_tokens("small") == near.kv_tokens("large") < wide.kv_tokens("large_2") == wide.share


def test_the_same_gpu_of_two_hosts_is_two(repository: Path) -> None:
    found = seated(far("64MiB", ", devices: ['cuda:0', 'cuda:0', 'cuda:1']"), repository)

    assert found == {
        "cpu of 10.0.0.1": ["small"],
        "cuda:0 of 10.0.0.1": ["large"],
        "cuda:0 of 10.0.0.2": ["large_2"],
        "cuda:1 of 10.0.0.2": ["large_3"],
    }


def test_what_another_host_has_is_not_asked(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GPUs are not here, and its memory is another."""
    monkeypatch.setattr(memory, "usable_bytes", lambda device: {"cpu": 16 << 20}[device])
    deployed = far("auto", ", devices: ['cpu', 'cuda:0', 'cuda:1']")
    (plan,) = memory_plans(deployed, repository, host_of(deployed, "small"))

    assert (plan.device, plan.budget) == ("cpu of 10.0.0.1", 16 << 20)
    assert with_kv_tokens(deployed, (plan,)).model("large").kv_tokens == plan.kv_tokens("large")


def test_a_file_of_a_model_elsewhere_is_not_read(repository: Path) -> None:
    """A part of a deployment has the weights of its own models only."""
    shutil.rmtree(repository / "small")

    assert list(seated(far("64MiB"), repository, "10.0.0.2")) == ["cpu of 10.0.0.2"]


def test_a_host_with_an_address_of_six_bytes_keeps_its_brackets() -> None:
    text = "models: [{name: one}]\ntransport: tcp\ninsecure: true\naddresses: {one: '[fd00::1]:5603'}\n"

    assert host_of(parse_deployment(text, "x"), "one") == "[fd00::1]"
