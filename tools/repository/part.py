"""One host's part of a deployment: what its Triton must load, and what all hosts must agree on.

A part holds the configurations of its own models only, so that a plain start loads no others, their weights,
and beside the repository (`agreed/`) the small files of the other models that every process reads at start.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from python_backend.config import Deployment, load_deployment
from router_backend.core.errors import ConfigError

DEPLOYMENT = "deployment.yaml"
AGREED_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
AGREED = "agreed"


def write_part(source: Path, target: Path, names: Sequence[str], files: dict[str, str]) -> None:
    """Make `target` the part of the deployment at `source` (its YAML file) that loads `names`.

    `files` are those of the whole repository. ConfigError names a model that the deployment does not have.
    """
    deployment = load_deployment(source)
    known = {Path(path).parent.name for path in files if path.endswith("config.pbtxt")}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ConfigError(f"--only: {unknown[0]!r} is not one of {', '.join(sorted(known))}")
    target.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        if Path(path).parts[0] in names:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text)
    settings = yaml.safe_load(source.read_text())
    for model in settings["models"]:
        loaded = [name for name in names if _serves(deployment, name, model["name"])]
        _bring(source.parent, target, deployment, model, loaded)
    settings["allowed_dirs"] = [*settings.get("allowed_dirs", []), f"../{AGREED}"]
    _bring_files(source.parent, target, deployment, names)
    (target / DEPLOYMENT).write_text(yaml.safe_dump(settings, sort_keys=False))


def _serves(deployment: Deployment, subserver: str, model: str) -> bool:
    return subserver in deployment.subservers and deployment.served(subserver).name == model


def _bring(
    source: Path, target: Path, deployment: Deployment, model: dict[str, str], loaded: list[str]
) -> None:
    """The model's directory if replicas of it are `loaded` here, in the first one's folder, else what must be
    agreed on; `model_dir` follows."""
    name = model["name"]
    folder = source / (deployment.model(name).model_dir or f"{name}/1")
    if loaded:
        if folder.is_dir():
            shutil.copytree(folder, target / loaded[0] / "1", dirs_exist_ok=True)
        model["model_dir"] = f"{loaded[0]}/1"
        if loaded[0] == name:
            del model["model_dir"]
        return
    placed = target.parent / AGREED / name
    placed.mkdir(parents=True, exist_ok=True)
    for file in AGREED_FILES:
        if (folder / file).is_file():
            shutil.copyfile(folder / file, placed / file)
    model["model_dir"] = f"../{AGREED}/{name}"


def _bring_files(source: Path, target: Path, deployment: Deployment, names: Sequence[str]) -> None:
    """Scripts, policies, router heads, and of the keys the public ones and the own secrets."""
    paths = [*deployment.policy_files, *(model.script for model in deployment.models if model.script)]
    for path in paths:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target / path)
    for folder in {folder for model in deployment.models for folder in model.heads.values()}:
        shutil.copytree(source / folder, target / folder, dirs_exist_ok=True)
    if deployment.keys and (source / deployment.keys).is_dir():
        _bring_keys(source / deployment.keys, target / deployment.keys, names)


def _bring_keys(source: Path, target: Path, names: Sequence[str]) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    secrets = [source / f"{name}.secret" for name in names]
    for path in [*source.glob("*.public"), *(path for path in secrets if path.is_file())]:
        shutil.copy2(path, target / path.name)
