"""Triton's three calls reach the role that config.pbtxt names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from python_backend import model
from python_backend.model import ROLES, TritonPythonModel
from python_backend.roles.place import Place
from router_backend.core.errors import ConfigError
from tests.unit.roles.test_place import arguments


class FakeRole:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def start(self) -> None:
        self.calls.append("start")

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        self.calls.append(list(requests))
        return ["answer"]

    def stop(self) -> None:
        self.calls.append("stop")


def test_the_three_calls_are_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    role = FakeRole()
    monkeypatch.setattr(TritonPythonModel, "compose", lambda self, place: role)
    monkeypatch.setattr(model.log, "install", lambda name: None)
    triton = TritonPythonModel()
    triton.initialize(arguments(role="front"))
    assert triton.execute(["request"]) == ["answer"]
    triton.finalize()
    assert role.calls == ["start", ["request"], "stop"]


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(ConfigError, match="router: parameter role: 'king' is not one of"):
        TritonPythonModel().compose(Place("router", Path("r"), {"role": "king"}))


def test_a_model_that_the_deployment_does_not_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text("models: [{name: small}]")
    place = Place("giant", tmp_path, {"role": "subserver"})
    with pytest.raises(ConfigError, match="giant: not a model of the deployment"):
        TritonPythonModel().compose(place)


def test_a_door_that_does_not_exist_is_named(tmp_path: Path) -> None:
    (tmp_path / "deployment.yaml").write_text("models: [{name: small}]")
    place = Place("router", tmp_path, {"role": "front", "door": "back"})
    with pytest.raises(ConfigError, match="router: parameter door: 'back' is not one of"):
        TritonPythonModel().compose(place)


def test_every_role_has_a_place_where_it_is_composed() -> None:
    assert set(ROLES) == {"front", "subserver", "preprocessing", "postprocessing"}
