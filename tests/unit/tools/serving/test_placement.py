"""The repository that is served is the committed one with the user's wishes in it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from python_backend.roles.confinement import check_confined
from router_backend.core.errors import ConfigError
from tests.unit.runner.heads.test_loading import artefact
from tools.make_repository import repository_files, stale
from tools.serving.placement import Wishes, adjusted, place, read_settings

SETTINGS = {
    "models": [{"name": "small", "threads": 2}, {"name": "large"}],
    "policy": {"name": "r_stitch", "params": {"cutoff": 0.2, "unit": "normalized"}},
}


def repository(folder: Path) -> Path:
    for name in ("small", "large"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1" / "config.json").write_text(name)
    (folder / "deployment.yaml").write_text(yaml.safe_dump(SETTINGS))
    return folder


def model_dir(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").touch()
    return folder


def test_without_wishes_the_settings_stay_as_they_are() -> None:
    assert adjusted(SETTINGS, Wishes()) == SETTINGS


def test_a_cutoff_replaces_the_committed_one_and_keeps_the_other_options() -> None:
    assert adjusted(SETTINGS, Wishes(cutoff=0.5))["policy"] == {
        "name": "r_stitch",
        "params": {"cutoff": 0.5, "unit": "normalized"},
    }


def test_another_policy_drops_the_options_of_the_committed_one() -> None:
    assert adjusted(SETTINGS, Wishes(policy="fixed"))["policy"] == {"name": "fixed", "params": {}}


def test_model_directories_go_to_the_first_and_the_last_model(tmp_path: Path) -> None:
    small, large = model_dir(tmp_path / "a"), model_dir(tmp_path / "b")
    models = adjusted(SETTINGS, Wishes(small=small, large=large))["models"]
    assert models == [
        {"name": "small", "threads": 2, "model_dir": str(small)},
        {"name": "large", "model_dir": str(large)},
    ]


def test_settings_add_folders_that_may_be_used_to_those_of_the_deployment() -> None:
    given, wishes = {**SETTINGS, "allowed_dirs": ["/data"]}, Wishes(settings={"allowed_dirs": ["/keys"]})
    assert adjusted(given, wishes)["allowed_dirs"] == ["/data", "/keys"]


def test_adjusting_leaves_the_given_settings_alone(tmp_path: Path) -> None:
    before = yaml.safe_dump(SETTINGS)
    adjusted(SETTINGS, Wishes(policy="fixed", small=model_dir(tmp_path / "a")))
    assert yaml.safe_dump(SETTINGS) == before


def test_a_directory_without_a_model_is_refused_by_the_name_of_its_option(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"LARGE: .* is not a Hugging Face directory: it has no config\.json"
    ):
        adjusted(SETTINGS, Wishes(large=tmp_path))


def test_the_placed_repository_is_complete_and_links_the_weights(tmp_path: Path) -> None:
    source, target = repository(tmp_path / "source"), tmp_path / "target"
    deployment = place(source, target, Wishes(cutoff=0.4))
    assert deployment.policy.params["cutoff"] == 0.4
    assert stale(repository_files(deployment), target) == []
    assert (target / "large" / "1" / "config.json").resolve() == source / "large" / "1" / "config.json"


def test_policies_are_copied_and_router_heads_are_linked(tmp_path: Path) -> None:
    source, target = repository(tmp_path / "source"), tmp_path / "target"
    text = 'from router_backend.policies.base import BaseRouter\nclass Mine(BaseRouter):\n    NAME = "mine"\n'
    (source / "mine.py").write_text(text + "    def __init__(self, place, spec): super().__init__(place)\n")
    head = artefact(source / "heads" / "citer", "citer", {})
    models = [{"name": "small", "heads": {"citer": "heads/citer"}}, {"name": "large"}]
    settings = {**SETTINGS, "models": models, "policy_files": ["mine.py"]}
    (source / "deployment.yaml").write_text(yaml.safe_dump(settings))

    for policy in ("mine", "citer"):
        assert place(source, target, Wishes(policy=policy)).policy.name == policy
    assert not (target / "mine.py").is_symlink()
    assert (target / "heads" / "citer").resolve() == head


@pytest.mark.parametrize("file", ["../mine.py", "gone.py"])
def test_a_policy_file_that_is_not_in_the_repository_is_refused(tmp_path: Path, file: str) -> None:
    source = repository(tmp_path / "source")
    (tmp_path / "mine.py").touch()
    (source / "deployment.yaml").write_text(yaml.safe_dump({**SETTINGS, "policy_files": [file]}))
    with pytest.raises(ConfigError, match="policy_files: "):
        place(source, tmp_path / "target", Wishes())


def test_paths_mean_the_same_files_in_the_placed_repository(tmp_path: Path) -> None:
    source, target = repository(tmp_path / "source"), tmp_path / "target"
    models = [{"name": "small", "engine": "scripted", "script": "script.json"}, {"name": "large"}]
    more = {"models": models, "keys": "keys", "front": {"tokenizer_dir": "words"}}
    (source / "deployment.yaml").write_text(yaml.safe_dump({**SETTINGS, **more}))
    placed = place(source, target, Wishes())
    found = (
        placed.keys,
        placed.model("small").script,
        placed.front.tokenizer_dir,
        placed.model("large").model_dir,
    )
    assert found == (str(source / "keys"), str(source / "script.json"), str(source / "words"), "")
    check_confined(placed, target)


def test_keys_of_a_file_of_settings_replace_those_of_the_deployment(tmp_path: Path) -> None:
    source = repository(tmp_path / "source")
    (tmp_path / "network.yaml").write_text(
        "transport: tcp\naddresses: {small: 'localhost:1', large: 'localhost:2'}\n"
    )
    wishes = Wishes(settings=read_settings(tmp_path / "network.yaml"))
    placed = place(source, tmp_path / "target", wishes)
    assert (placed.transport, placed.addresses["large"], placed.policy.name) == (
        "tcp",
        "localhost:2",
        "r_stitch",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "No such file"), ("- a", "must be a mapping of keys"), ("a: [", "while parsing a flow")],
)
def test_a_file_of_settings_that_is_none_is_named(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "network.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=rf"(?s)--settings: .*network.yaml: .*{words}"):
        read_settings(path)


def test_placing_again_forgets_what_was_there(tmp_path: Path) -> None:
    source, target = repository(tmp_path / "source"), tmp_path / "target"
    place(source, target, Wishes())
    (target / "small" / "1" / "old").touch()
    place(source, target, Wishes())
    assert not (target / "small" / "1" / "old").exists()


@pytest.mark.parametrize(
    ("wishes", "words"),
    [(Wishes(policy="odd"), "'odd' is unknown"), (Wishes(policy="fixed", cutoff=0.1), "cutoff")],
)
def test_a_policy_that_cannot_be_is_refused_before_the_start(
    tmp_path: Path, wishes: Wishes, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        place(repository(tmp_path / "source"), tmp_path / "target", wishes)


def test_a_source_without_a_deployment_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the deployment file"):
        place(tmp_path, tmp_path / "target", Wishes())
