"""Places the model repository that is served: the one that is given, adjusted to what the user wishes.

Writes only under the folder it is given; the committed repository and the weights are linked, not copied.
A wish that cannot be met is a ConfigError that names the option.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from python_backend.config import Deployment, load_deployment
from python_backend.roles.agreeing import cutoffs
from python_backend.roles.policy_files import load_policies
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec
from router_backend.policies.base import Place
from router_backend.policies.registry import build
from tools.make_repository import repository_files, write

DEPLOYMENT = "deployment.yaml"
PATHS = ("keys", "profile")
MODEL_PATHS = ("model_dir", "engine_dir", "script")
FRONT_PATHS = ("tokenizer_dir",)
"""Keys whose relative paths start at the repository. Policies and router heads are brought along instead."""
VOCABULARY_FOR_TRIAL = 2
"""Any size: a policy is only built to see whether its options are right."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a launcher may change about the given deployment; None = leave it."""

    policy: str | None = None
    cutoff: float | None = None
    small: Path | None = None
    large: Path | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the deployment that replace the given ones, such as those of its transport; folders in
    `allowed_dirs` are added."""


def read_settings(path: Path | None) -> dict[str, Any]:
    """A YAML file of keys of the deployment; ConfigError names a file that cannot be read or is none."""
    if path is None:
        return {}
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--settings: {path}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"--settings: {path}: must be a mapping of keys of the deployment")
    return found


def place(source: Path, target: Path, wishes: Wishes) -> Deployment:
    """Make `target` the repository to serve, from the one at `source`; returns its deployment."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    load_deployment(source / DEPLOYMENT)
    settings = adjusted(yaml.safe_load((source / DEPLOYMENT).read_text()), wishes)
    settings = anchored(settings, source.resolve())
    settings["allowed_dirs"] = _allowed(source, settings)
    (target / DEPLOYMENT).write_text(yaml.safe_dump(settings, sort_keys=False))
    deployment = load_deployment(target / DEPLOYMENT)
    files = repository_files(deployment)
    _link_files(source, target, set(files))
    _bring_along(source, target, deployment)
    check_policy(deployment, target)
    write(files, target)
    return deployment


def adjusted(settings: dict[str, Any], wishes: Wishes) -> dict[str, Any]:
    """The deployment's settings with the wishes in them; the models are ordered smallest first."""
    allowed = [*settings.get("allowed_dirs", ()), *wishes.settings.get("allowed_dirs", ())]
    settings = {**settings, **wishes.settings, **({"allowed_dirs": allowed} if allowed else {})}
    models = [dict(model) for model in settings["models"]]
    for model, folder in ((models[0], wishes.small), (models[-1], wishes.large)):
        if folder is not None:
            model["model_dir"] = str(_existing(model["name"], folder))
    return {**settings, "models": models, "policy": _policy(settings.get("policy") or {}, wishes)}


def anchored(settings: dict[str, Any], home: Path) -> dict[str, Any]:
    """The settings with absolute paths, so that they mean the same files in a copy of the repository."""

    def at_home(values: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
        return {**values, **{key: str(home / values[key]) for key in keys if values.get(key)}}

    models = [at_home(model, MODEL_PATHS) for model in settings["models"]]
    front = at_home(settings.get("front") or {}, FRONT_PATHS)
    return {**at_home(settings, PATHS), "models": models, **({"front": front} if front else {})}


def check_policy(deployment: Deployment, repository: Path) -> None:
    """ConfigError when the deployment's policy or one of its options is not known."""
    params = tuple(deployment.policy.params.items())
    heads, own = cutoffs(deployment, repository), load_policies(deployment.policy_files, repository)
    entry = ModelIndex(deployment.entry_index)
    where = Place(ModelIndex(0), deployment.names, entry, VOCABULARY_FOR_TRIAL, heads)
    build(PolicySpec(deployment.policy.name, params), where, own)


def _policy(committed: dict[str, Any], wishes: Wishes) -> dict[str, Any]:
    """Options of the committed policy are kept as long as it is the same policy."""
    name = wishes.policy or committed.get("name", "r_stitch")
    params = dict(committed.get("params") or {}) if name == committed.get("name") else {}
    if wishes.cutoff is not None:
        params["cutoff"] = wishes.cutoff
    return {"name": name, "params": params}


def _allowed(source: Path, settings: dict[str, Any]) -> list[str]:
    """Where the links of the served copy lead: the repository, the models that the user named, and whatever
    these link to themselves, such as the blobs of a download cache."""
    home = source.resolve()
    folders = [home, *(home / model.get("model_dir", "") for model in settings["models"])]
    files = [file for folder in folders[1:] for file in sorted(folder.glob("*"))]
    linked = [file.resolve().parent for file in (*files, *source.glob("*/1/*")) if file.is_symlink()]
    own = [home / folder for folder in settings.get("allowed_dirs") or ()]
    found = dict.fromkeys(str(folder.resolve()) for folder in (*folders, *linked, *own))
    return list(found)


def _existing(name: str, folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{name.upper()}: {folder} is not a Hugging Face directory: it has no config.json")
    return folder.resolve()


def _link_files(source: Path, target: Path, written: set[str]) -> None:
    """Links to everything in the version folders of `source` that is not about to be written."""
    for path in source.glob("*/1/*"):
        relative = path.relative_to(source)
        if str(relative) not in written:
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            (target / relative).symlink_to(path.resolve())


def _bring_along(source: Path, target: Path, deployment: Deployment) -> None:
    """Policies are copied, because a link would lead out of the repository; router heads are linked."""
    for file in deployment.policy_files:
        if (source / file).is_file() and (target / file).parent.resolve().is_relative_to(target.resolve()):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, target / file)
    for folder in {folder for model in deployment.models for folder in model.heads.values()}:
        if not (target / folder).exists():
            (target / folder).parent.mkdir(parents=True, exist_ok=True)
            (target / folder).symlink_to((source / folder).resolve())
