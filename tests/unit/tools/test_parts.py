"""One host's part of a deployment, and the commands around it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from python_backend.config import load_deployment
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.confinement import check_confined
from tests.free_ports import free_addresses
from tests.source_tree import ROOT
from tools import serve_part, try_hosts
from tools.hosts.wire import Weather, WireError
from tools.make_repository import main
from tools.try_hosts import Load, Row, as_text

COMMITTED = ROOT / "model_repository" / "deployment.yaml"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_part_loads_its_own_models_and_agrees_with_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = tmp_path / "part" / "repository"
    assert main([str(COMMITTED), "--only", "large", "--out", str(part), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    own, whole = load_deployment(part / "deployment.yaml"), load_deployment(COMMITTED)

    assert told == {"repository": str(part), "models": ["large"]}
    assert [path.parent.name for path in part.glob("*/config.pbtxt")] == ["large"]
    assert list((part / "large" / "1").glob("*.safetensors"))
    assert not list(tmp_path.rglob("small/*.safetensors"))
    assert own.model("small").model_dir == "../agreed/small"
    check_confined(own, part)
    assert read_agreement(own, part) == read_agreement(whole, COMMITTED.parent)


def test_a_part_gets_every_public_key_and_its_own_secrets_only(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    try_hosts.write_deployment(whole, free_addresses(("token_router", "small", "large")))
    part = tmp_path / "part" / "repository"
    assert main([str(whole / "deployment.yaml"), "--only", "token_router", "small", "--out", str(part)]) == 0

    keys = ["large.public", "small.public", "small.secret", "token_router.public", "token_router.secret"]
    assert files(part / "keys") == keys
    assert files(part)[0] == "deployment.yaml" and "script.json" in files(part)


def test_a_model_that_is_not_there_and_a_missing_folder_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(COMMITTED), "--only", "huge", "--out", str(tmp_path / "part")]) == 2
    assert "--only: 'huge' is not one of" in capsys.readouterr().err
    assert main([str(COMMITTED), "--only", "large"]) == 2
    assert "name a folder of its own with --out" in capsys.readouterr().err


def test_a_part_without_a_deployment_is_not_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve_part.main([str(tmp_path)]) == 1
    assert "deployment.yaml: No such file" in capsys.readouterr().err


def test_a_part_of_a_whole_repository_names_a_model_or_a_door_that_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = str(COMMITTED.parent)
    assert serve_part.main([whole, "--only", "huge"]) == 1
    assert "--only: 'huge' is not one of ensemble, large, " in capsys.readouterr().err
    assert serve_part.main([whole, "--only", "small", "--openai-port", "0"]) == 1
    assert "the OpenAI server asks token_router, which this part does not load" in capsys.readouterr().err


def test_hosts_are_shown_side_by_side_and_a_difference_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Row("one host", 4, 4, 123.45), Row("two hosts", 4, 3, 100.0)]
    monkeypatch.setattr(try_hosts, "measure", lambda load, weather: rows)
    assert try_hosts.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["rows"][1]["exact"] == 3
    assert as_text(rows[:1]).splitlines()[1] == f"{'one host':<32}{'4/4':>8}{123.5:>10}"


def test_where_there_can_be_no_second_host_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def impossible(load: Load, weather: Weather) -> list[Row]:
        raise WireError("network namespaces need root")

    monkeypatch.setattr(try_hosts, "measure", impossible)
    assert try_hosts.main([]) == 2
    assert capsys.readouterr().err == "try_hosts: network namespaces need root\n"
