"""The chart's layout `separate`: a pod per model and one for the doors, over TCP with keys from a Secret."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from python_backend.config import parse_deployment
from tests.helm_chart import CHART, documents, environment, helm, pod
from tests.test_helm_chart import KUBERNETES, kubernetes_validate

SEPARATE: dict[str, Any] = {"layout": "separate", "separate": {"keysSecret": "router-keys"}}
GPU = {"limits": {"nvidia.com/gpu": 2, "memory": "64Gi"}}
OWN: dict[str, Any] = {
    "layout": "separate",
    "policy": "r_stitch",
    "cutoff": 0.3,
    "serviceMonitor": {"enabled": True},
    "openai": {"apiKeysSecret": "clients"},
    "models": {"volume": {"persistentVolumeClaim": {"claimName": "models"}}, "deployment": "models: []\n"},
    "separate": {
        "keysSecret": "router-keys",
        "ensemble": True,
        "door": {"resources": {"limits": {"memory": "2Gi"}}},
        "models": [
            {"name": "draft_model"},
            {
                "name": "large",
                "resources": GPU,
                "runtimeClassName": "nvidia",
                "nodeSelector": {"gpu": "h200"},
                "volume": {"persistentVolumeClaim": {"claimName": "big"}},
            },
        ],
    },
}
PARTS = ("door", "small", "large")


def network(found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load(found["ConfigMap", "demo-token-router"]["data"]["network.yaml"])
    return settings


@pytest.mark.parametrize("values", [SEPARATE, OWN], ids=["default", "everything"])
def test_helm_lints_it_and_kubernetes_knows_every_field(values: dict[str, Any]) -> None:
    report = helm.lint(str(CHART), values, strict=True)
    assert (report["errors"], [found for found in report["messages"] if found["severity"] > 1]) == ([], [])
    for (kind, _), document in documents(values).items():
        if kind != "ServiceMonitor":
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_each_part_is_one_pod_with_a_name_that_its_peers_find_before_it_is_ready() -> None:
    found = documents(SEPARATE)
    for part in PARTS:
        workload = found["StatefulSet", f"demo-token-router-{part}"]
        service = found["Service", f"demo-token-router-{part}-handoff"]
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert (workload["spec"]["replicas"], workload["spec"]["serviceName"]) == (
            1,
            service["metadata"]["name"],
        )
        assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
        assert service["spec"]["selector"].items() <= labels.items()
    assert ("Deployment", "demo-token-router") not in found


def test_the_settings_are_a_deployment_whose_endpoints_listen_where_their_services_lead() -> None:
    found = documents(SEPARATE)
    models = {"models": [{"name": "small"}, {"name": "large"}]}
    settings = parse_deployment(yaml.safe_dump({**models, **network(found)}), "network.yaml")
    assert settings.transport == "tcp"
    for endpoint, part in (("token_router", "door"), ("small", "small"), ("large", "large")):
        host, _, port = settings.addresses[endpoint].partition(":")
        assert settings.listen[endpoint] == f"0.0.0.0:{port}"
        assert int(port) in {entry["port"] for entry in found["Service", host]["spec"]["ports"]}
        (container,) = pod(found["StatefulSet", f"demo-token-router-{part}"])["containers"]
        assert int(port) in {entry["containerPort"] for entry in container["ports"]}


def test_a_replica_is_a_part_of_its_own_that_the_deployment_finds_by_its_name() -> None:
    parts = [{"name": "small"}, {"name": "large"}, {"name": "large_2"}]
    found = documents({**SEPARATE, "separate": {"keysSecret": "router-keys", "models": parts}})
    models = {"models": [{"name": "small"}, {"name": "large", "replicas": 2}]}
    deployment = parse_deployment(yaml.safe_dump({**models, **network(found)}), "network.yaml")

    second = pod(found["StatefulSet", "demo-token-router-large-2"])
    assert second["containers"][0]["args"] == ["part", "large_2"]
    assert deployment.subservers == ("small", "large", "large_2")
    host, _, port = deployment.addresses["large_2"].partition(":")
    assert deployment.listen["large_2"] == f"0.0.0.0:{port}"
    assert int(port) in {entry["port"] for entry in found["Service", host]["spec"]["ports"]}
    (secret,) = (volume["secret"] for volume in second["volumes"] if volume["name"] == "secret")
    assert secret["items"][-1]["path"] == "large_2.secret"


def test_clients_reach_the_doors_and_every_pod_is_scraped_once() -> None:
    found = documents(SEPARATE)
    front = found["Service", "demo-token-router"]["spec"]
    assert front["selector"]["app.kubernetes.io/component"] == "door"
    assert {port["port"] for port in front["ports"]} == {8000, 8001, 8002, 8003}
    metrics = [
        name
        for (kind, name), document in found.items()
        if kind == "Service" and "metrics" in {port["name"] for port in document["spec"]["ports"]}
    ]
    assert sorted(metrics) == [
        "demo-token-router",
        "demo-token-router-large-handoff",
        "demo-token-router-small-handoff",
    ]


def test_a_part_gets_its_own_secret_key_only_as_a_file_that_nobody_else_may_read() -> None:
    large = pod(documents(SEPARATE)["StatefulSet", "demo-token-router-large"])
    volumes = {volume["name"]: volume for volume in large["volumes"]}
    (init,) = large["initContainers"]
    assert init["command"][-1] == "install -m 0600 /secret/* /keys/"
    assert volumes["keys"]["emptyDir"]["medium"] == "Memory"
    assert (volumes["secret"]["secret"]["secretName"], volumes["secret"]["secret"]["defaultMode"]) == (
        "router-keys",
        0o400,
    )
    assert [item["path"] for item in volumes["secret"]["secret"]["items"]] == [
        *("token_router.public", "small.public", "large.public"),
        "large.secret",
    ]


def test_a_part_loads_its_models_and_has_resources_and_weights_of_its_own() -> None:
    found = documents(OWN)
    door, draft, large = (
        pod(found["StatefulSet", f"demo-token-router-{part}"]) for part in ("door", "draft-model", "large")
    )
    loads = [one["containers"][0]["args"] for one in (door, draft, large)]
    doors = ["token_router", "router", "preprocessing", "postprocessing", "ensemble"]
    assert loads == [["part", *doors], ["part", "draft_model"], ["part", "large"]]
    assert large["containers"][0]["resources"] == GPU
    assert (large["runtimeClassName"], large["nodeSelector"]) == ("nvidia", {"gpu": "h200"})
    assert "runtimeClassName" not in draft
    claims = [
        next(volume for volume in one["volumes"] if volume["name"] == "models")
        for one in (door, draft, large)
    ]
    assert [claim["persistentVolumeClaim"]["claimName"] for claim in claims] == ["models", "models", "big"]
    variables = [environment(one["containers"][0]) for one in (door, large)]
    assert [(one.get("OPENAI_PORT"), one.get("API_KEYS")) for one in variables] == [
        ("8003", "/etc/token-router-api/keys"),
        (None, None),
    ]
    assert network(found)["policy"] == {"name": "r_stitch", "params": {"cutoff": 0.3}}
    assert network(found)["addresses"]["router"] == "demo-token-router-door-handoff:5601"


def test_a_pod_drains_and_one_at_a_time_is_taken() -> None:
    found = documents({**SEPARATE, "drain": {"leaveServiceSeconds": 7, "openStreamsSeconds": 60}})
    for part in PARTS:
        spec = pod(found["StatefulSet", f"demo-token-router-{part}"])
        assert spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
        assert spec["terminationGracePeriodSeconds"] == 87
        assert spec["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"
    assert found["PodDisruptionBudget", "demo-token-router"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"separate": {"keysSecret": ""}}, "separate.keysSecret: name the Secret with the keys"),
        ({"replicas": 2}, "replicas must be 1"),
        ({"autoscaling": {"enabled": True}}, "autoscaling must be off"),
        ({"cutoff": 0.3}, "cutoff needs policy"),
        ({"separate": {"keysSecret": "k", "models": [{"name": "door"}]}}, "separate"),
    ],
)
def test_what_cannot_be_served_so_is_refused_with_a_reason(values: dict[str, Any], words: str) -> None:
    with pytest.raises(helm.HelmError, match=words):
        documents({**SEPARATE, **values})
