"""The Helm chart, rendered by Helm's own library (`helm-python-sdk` carries Helm 4)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.source_tree import ROOT

helm = pytest.importorskip("helm_python", reason="the wheel helm-python-sdk carries Helm")

CHART = ROOT / "docker" / "helm" / "token-router"


def documents(values: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Objects by kind and name; every name is given once."""
    texts = helm.Chart.load(str(CHART)).render(values, name="demo", namespace="llm")
    found = [
        document
        for name, text in texts.items()
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]
    named = {(document["kind"], document["metadata"]["name"]): document for document in found}
    assert len(named) == len(found)
    return named


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}
