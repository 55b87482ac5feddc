"""The Helm chart: linted and rendered by Helm's own library, every object held against Kubernetes' schemas.

No kubeconform and no helm binary is packaged where these tests run; `helm-python-sdk` carries Helm 4 as a
library, `kubernetes-validate` the schemas. Nothing here has been installed into a cluster.
"""

from __future__ import annotations

from typing import Any

import pytest

from python_backend.metric_catalogue import CATALOGUE
from tests.helm_chart import CHART, documents, helm
from tests.helm_chart import pod as pod_of

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="carries Kubernetes' schemas")

KUBERNETES = "1.29"
EVERYTHING: dict[str, Any] = {
    "replicas": 3,
    "policy": "r_stitch",
    "cutoff": 0.3,
    "models": {
        "volume": {"persistentVolumeClaim": {"claimName": "models"}},
        "deployment": "models: [{name: small}, {name: large}]\n",
    },
    "resources": {"limits": {"nvidia.com/gpu": 1}},
    "runtimeClassName": "nvidia",
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "env": [{"name": "TR", "value": "1"}],
    "nodeSelector": {"gpu": "h200"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "pull"}],
    "openai": {"apiKeysSecret": "clients"},
}


def rendered(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Objects by kind, of which the layout `pod` has one each."""
    found = documents(values)
    assert len({kind for kind, _ in found}) == len(found)
    return {kind: document for (kind, _), document in found.items()}


def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return pod_of(objects["Deployment"])


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["default", "everything"])
def test_helm_lints_it_and_kubernetes_knows_every_field(values: dict[str, Any]) -> None:
    report = helm.lint(str(CHART), values, strict=True)
    assert (report["errors"], [found for found in report["messages"] if found["severity"] > 1]) == ([], [])
    for kind, document in rendered(values).items():
        if kind != "ServiceMonitor":
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_what_is_there_follows_from_the_values() -> None:
    assert set(rendered({})) == {"Deployment", "Service", "PodDisruptionBudget"}
    more = {"ConfigMap", "HorizontalPodAutoscaler", "ServiceMonitor"}
    assert set(rendered(EVERYTHING)) == {"Deployment", "Service", "PodDisruptionBudget"} | more


def test_a_pod_leaves_the_service_and_drains_before_it_is_killed() -> None:
    spec = pod(rendered({"drain": {"leaveServiceSeconds": 7, "openStreamsSeconds": 60}}))
    container = spec["containers"][0]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "7"]
    assert {"name": "DRAIN_S", "value": "60"} in container["env"]
    assert spec["terminationGracePeriodSeconds"] == 87
    assert container["readinessProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": "http"}


def test_the_autoscaler_and_the_monitor_ask_for_what_there_is() -> None:
    objects = rendered(EVERYTHING)
    assert "replicas" not in objects["Deployment"]["spec"]
    metric = objects["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert metric.removeprefix("token_router_") in CATALOGUE
    ports = {port["name"] for port in objects["Service"]["spec"]["ports"]}
    assert objects["ServiceMonitor"]["spec"]["endpoints"][0]["port"] in ports
    labels = objects["Service"]["metadata"]["labels"]
    assert objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_a_volume_of_models_and_a_deployment_file_are_where_the_server_looks() -> None:
    spec = pod(rendered(EVERYTHING))
    mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    keys = {"api-keys": "/etc/token-router-api"}
    assert mounts == {"shm": "/dev/shm", "models": "/models", "files": "/models/deployment.yaml", **keys}
    assert {"name": "MODEL_REPOSITORY", "value": "/models"} in spec["containers"][0]["env"]
    assert {"name": "CUTOFF", "value": "0.3"} in spec["containers"][0]["env"]


def test_openais_api_has_a_port_and_asks_for_keys_where_a_secret_has_some() -> None:
    objects = rendered(EVERYTHING)
    ports = {port["name"]: port["port"] for port in objects["Service"]["spec"]["ports"]}
    assert ports["openai"] == 8003
    variable = {"name": "API_KEYS", "value": "/etc/token-router-api/keys"}
    assert variable in pod(objects)["containers"][0]["env"]
    assert variable not in pod(rendered({}))["containers"][0]["env"]


def test_a_value_that_nobody_knows_is_refused() -> None:
    chart = helm.Chart.load(str(CHART))
    chart.validate_schema({"replicas": 2})
    with pytest.raises(helm.HelmError, match="replica_count"):
        chart.validate_schema({"replica_count": 2})
