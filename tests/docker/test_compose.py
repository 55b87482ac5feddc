"""compose.yaml is valid, and its services are what docs/deploy.md promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.compose_file import configured
from tests.source_tree import ROOT

TEXT = (ROOT / "docker" / "compose.yaml").read_text()
SERVERS = ("cpu", "gpu")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = configured(TEXT, {})["services"]
    return found


@pytest.mark.parametrize(
    "variables", [{}, {"BIND": "0.0.0.0", "HTTP_PORT": "9000", "TRITON_TAG": "25.10", "IPC": "private"}]
)
def test_the_file_is_what_the_specification_allows(variables: dict[str, str]) -> None:
    assert set(configured(TEXT, variables)["services"]) == {*SERVERS, "prometheus", "grafana"}


def test_a_key_that_compose_does_not_know_would_be_seen() -> None:
    with pytest.raises(ValueError, match="ulimit"):
        configured(TEXT.replace("ulimits:", "ulimit:"), {})


def test_every_service_waits_for_its_profile(services: dict[str, Any]) -> None:
    profiles = {name: service["profiles"] for name, service in services.items()}
    monitoring = ["monitoring"]
    assert profiles == {"cpu": ["cpu"], "gpu": ["gpu"], "prometheus": monitoring, "grafana": monitoring}


def test_nothing_is_mounted_twice_at_one_place(services: dict[str, Any]) -> None:
    """The engine refuses to start such a container."""
    for name, service in services.items():
        places = [volume.split(":")[1] for volume in service.get("volumes", ())]
        assert len(places) == len(set(places)), name


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_healthy_when_it_is_ready_and_gets_the_time_to_drain(
    services: dict[str, Any], name: str
) -> None:
    server = services[name]
    assert server["healthcheck"]["test"] == ["CMD", "python3", "docker/healthcheck.py"]
    assert int(server["stop_grace_period"].rstrip("s")) > int(server["environment"]["DRAIN_S"])
    assert all(port.startswith("127.0.0.1:") for port in server["ports"]), "nobody is authenticated"
    assert (server["cap_drop"], server["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert server["shm_size"] in {"1gb", "2gb"}


def test_the_engines_get_every_gpu_and_the_memory_that_nccl_wants(services: dict[str, Any]) -> None:
    gpu = services["gpu"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", "all", ["gpu"])
    assert gpu["ulimits"] == {"memlock": -1, "stack": 67108864}
    assert (gpu["shm_size"], gpu["ipc"]) == ("2gb", "host")


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_built_from_a_file_of_this_repository(services: dict[str, Any], name: str) -> None:
    build = services[name]["build"]
    file = ROOT / "docker" / build["context"] / build["dockerfile"]
    assert file.is_file()
    text = file.read_text()
    assert [argument for argument in build["args"] if f"ARG {argument}=" not in text] == []


def test_paths_that_are_mounted_are_there(services: dict[str, Any]) -> None:
    volumes = [volume for service in services.values() for volume in service.get("volumes", [])]
    sources = [volume.split(":")[0] for volume in volumes]
    ours = [Path(source) for source in sources if source.startswith(".")]
    assert [str(path) for path in ours if not (ROOT / "docker" / path).exists()] == []


def test_prometheus_reads_the_rules_that_it_names_and_finds_the_server_by_its_alias(
    services: dict[str, Any],
) -> None:
    own = yaml.safe_load((ROOT / "docker" / "monitoring" / "prometheus.yml").read_text())
    mounted = {volume.split(":")[1] for volume in services["prometheus"]["volumes"]}
    assert {f"/etc/prometheus/{name}" for name in own["rule_files"]} <= mounted
    (target,) = own["scrape_configs"][0]["static_configs"][0]["targets"]
    for name in SERVERS:
        assert target.split(":")[0] in services[name]["networks"]["default"]["aliases"]
