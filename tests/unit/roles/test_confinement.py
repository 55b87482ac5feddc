"""What a deployment names stays inside its repository, links followed, or where the operator allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from python_backend.config import parse_deployment
from python_backend.roles.confinement import check_confined
from python_backend.roles.place import Place
from router_backend.core.errors import ConfigError

KEYS = {
    "models.small.model_dir": {"models": [{"name": "small", "model_dir": "OUT"}]},
    "models.small.engine_dir": {"models": [{"name": "small", "engine": "trtllm", "engine_dir": "OUT"}]},
    "models.small.heads.r2r": {"models": [{"name": "small", "heads": {"r2r": "OUT"}}]},
    "models.small.script": {"models": [{"name": "small", "engine": "scripted", "script": "OUT"}]},
    "front.tokenizer_dir": {"models": [{"name": "small"}], "front": {"tokenizer_dir": "OUT"}},
    "profile": {"models": [{"name": "small"}], "profile": "OUT"},
    "event_log": {"models": [{"name": "small"}], "event_log": "OUT"},
    "keys": {"models": [{"name": "small"}], "keys": "OUT"},
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With `small/1`; beside it lies a folder `elsewhere` with a file."""
    (tmp_path / "repository" / "small" / "1").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model.safetensors").touch()
    return tmp_path / "repository"


def check(repository: Path, settings: dict[str, object], **more: object) -> None:
    check_confined(parse_deployment(json.dumps({**settings, **more}), "test"), repository)


def naming(settings: dict[str, object], path: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(json.dumps(settings).replace("OUT", path))
    return found


@pytest.mark.parametrize("key", KEYS)
def test_every_path_that_leads_out_is_refused_with_its_key_and_the_cure(repository: Path, key: str) -> None:
    outside = repository.parent / "elsewhere"
    for written in ("../elsewhere", str(outside)):
        with pytest.raises(ConfigError) as caught:
            check(repository, naming(KEYS[key], written))
        message = str(caught.value)
        assert f"{key}: " in message and f"add {outside} to allowed_dirs" in message
    check(repository, naming(KEYS[key], "small/1"))


@pytest.mark.parametrize("key", KEYS)
def test_a_folder_that_the_operator_allows_may_be_named(repository: Path, key: str) -> None:
    outside = repository.parent / "elsewhere"
    for allowed in (str(outside), "../elsewhere", str(repository.parent)):
        check(repository, naming(KEYS[key], str(outside)), allowed_dirs=[allowed])
    with pytest.raises(ConfigError, match=key):
        check(repository, naming(KEYS[key], str(outside)), allowed_dirs=[str(outside / "deeper")])


def test_links_are_followed_of_the_folder_and_of_the_files_in_it(repository: Path) -> None:
    settings: dict[str, object] = {"models": [{"name": "small"}]}
    outside = repository.parent / "elsewhere"
    link = repository / "small" / "1" / "model.safetensors"
    link.symlink_to(outside / "model.safetensors")
    with pytest.raises(ConfigError, match=r"model\.safetensors is .*outside the repository.*allowed_dirs"):
        check(repository, settings)
    link.unlink()
    (repository / "small" / "1").rmdir()
    (repository / "small" / "1").symlink_to(outside)
    with pytest.raises(ConfigError, match=r"models\.small\.model_dir: "):
        check(repository, settings)
    check(repository, settings, allowed_dirs=[str(outside)])


def test_a_process_reads_no_deployment_that_leads_out(repository: Path) -> None:
    (repository / "deployment.yaml").write_text(json.dumps(naming(KEYS["event_log"], "/")))
    with pytest.raises(ConfigError, match="event_log: / leads out of the repository"):
        Place("small", repository).deployment()
