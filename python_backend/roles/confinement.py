"""Keeps what a deployment names inside the model repository, or inside folders that its operator allowed.

Paths are compared with every link followed, also those of the files in a named folder: a repository that
was unpacked from somewhere must not read or write elsewhere. Reads folders, never files; the check is of
the configuration at start, not a sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from python_backend.config import Deployment
from router_backend.core.errors import ConfigError


def check_confined(deployment: Deployment, repository: Path) -> None:
    """ConfigError names the key that leads out, where to, and the cure."""
    home = repository.resolve()
    roots = (home, *((home / folder).resolve() for folder in deployment.allowed_dirs))
    for key, value in named_paths(deployment):
        for path in _with_files(home / value):
            found = path.resolve()
            if not any(found.is_relative_to(root) for root in roots):
                raise ConfigError(_leads_out(key, path, found))


def named_paths(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """(key, path as it is written or by default); policy files have a stricter check of their own."""
    for model in deployment.models:
        where = f"models.{model.name}"
        yield f"{where}.model_dir", model.model_dir or f"{model.name}/1"
        yield from ((f"{where}.heads.{name}", folder) for name, folder in model.heads.items())
        own = {"script": model.script, "engine_dir": model.engine_dir}
        yield from ((f"{where}.{key}", path) for key, path in own.items() if path)
    shared = {
        "front.tokenizer_dir": deployment.front.tokenizer_dir,
        "profile": deployment.profile,
        "event_log": deployment.event_log,
        "keys": deployment.keys,
    }
    yield from ((key, path) for key, path in shared.items() if path)


def _with_files(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir():
        yield from sorted(path.iterdir())


def _leads_out(key: str, path: Path, found: Path) -> str:
    what = f"{path} is {found}, outside" if path != found else f"{path} leads out of"
    folder = found if found.is_dir() else found.parent
    return f"{key}: {what} the repository: move it inside, or add {folder} to allowed_dirs in deployment.yaml"
