"""What a Triton model learns about itself from `initialize`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from python_backend.config import parse_deployment
from python_backend.roles.place import Place, model_dir, place_of, tokenizer_dir
from router_backend.core.errors import ConfigError


def arguments(**parameters: str) -> dict[str, str]:
    config = {"parameters": {name: {"string_value": value} for name, value in parameters.items()}}
    return {
        "model_name": "router",
        "model_repository": "/models/router",
        "model_instance_name": "router_0_0",
        "model_config": json.dumps(config),
    }


def test_empty_and_unfilled_parameters_are_unset() -> None:
    place = place_of(arguments(role="front", door="", deployment="${deployment}"))
    assert place == Place("router", Path("/models"), {"role": "front"}, "router_0_0")
    assert (place.parameter("door", "text"), place.required("role")) == ("text", "front")
    with pytest.raises(ConfigError, match="router: parameter 'door' is missing"):
        place.required("door")


def test_the_deployment_lies_in_the_repository_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text("models: [{name: small}]")
    (tmp_path / "other.yaml").write_text("models: [{name: large}]")
    here, there = Place("x", tmp_path), Place("x", tmp_path, {"deployment": "other.yaml"})
    assert (here.deployment().names, there.deployment().names) == (("small",), ("large",))
    assert here.tokenizer_dir() == tmp_path / "small" / "1"


def test_directories_follow_the_settings() -> None:
    text = "models: [{name: small}, {name: large, model_dir: w}]\nentry: large"
    deployment = parse_deployment(text, "test")
    assert model_dir(deployment, Path("/r"), "small") == Path("/r/small/1")
    assert tokenizer_dir(deployment, Path("/r")) == Path("/r/w")
    told = parse_deployment(text + "\nfront: {tokenizer_dir: t}", "test")
    assert tokenizer_dir(told, Path("/r")) == Path("/r/t")
