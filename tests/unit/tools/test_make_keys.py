"""The command that makes keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.make_keys import main

DEPLOYMENT = "models: [{name: small}, {name: large}]\n"


def test_it_makes_a_pair_for_every_endpoint_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deployment.yaml"
    path.write_text(DEPLOYMENT)
    assert main([str(path), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([str(path)]) == 0
    names = ["small", "large", "token_router", "router"]
    assert first == {"folder": str(tmp_path / "keys"), "endpoints": names, "made": names}
    assert "nobody: all are there" in capsys.readouterr().out
    assert len(list((tmp_path / "keys").iterdir())) == 8


def test_a_deployment_that_cannot_be_read_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "away.yaml")]) == 2
    assert "away.yaml: No such file" in capsys.readouterr().err
