"""Policies that users write: Python files in the repository, loaded at start in front and subservers alike.

A file holds classes with a `NAME`, by which requests ask for them. Everything is checked before the first
request: what is wrong is a ConfigError that names file, class and method. A policy is code of whoever
owns the repository, so a path that leads out of it is refused; a client can only choose by name.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from router_backend.core.errors import ConfigError
from router_backend.core.request import PolicySpec
from router_backend.policies.base import Place, Router
from router_backend.policies.registry import FACTORIES, Factory
from router_backend.scheduler.batch import Needs

METHODS: Mapping[str, tuple[str, ...]] = {
    "entry": ("request",),
    "route": ("step",),
    "send": ("sequence", "target"),
    "receive": ("sequence", "handoff"),
}
"""What a router must answer to (`router_backend.policies.base.Router`)."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class FilePolicy:
    """Builds `kind`, a class that the user wrote in `where`."""

    where: str
    kind: type[Router]

    def __call__(self, place: Place, spec: PolicySpec) -> Router:
        """ConfigErrors are the policy's own words about its parameters; all else names file and class."""
        try:
            router = self.kind(place, spec)  # type: ignore[call-arg]
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{self.where}.__init__: {type(error).__name__}: {error}") from error
        if not isinstance(getattr(router, "needs", None), Needs):
            raise ConfigError(f"{self.where}.needs: must be a Needs, e.g. needs = Needs(entropy=True)")
        return router


def load_policies(files: Sequence[str], repository: Path) -> dict[str, Factory]:
    """By name, every policy in `files`, which are relative to `repository`."""
    found: dict[str, Factory] = {}
    for file in files:
        for name, policy in _policies(file, _inside(file, repository)).items():
            if name in found or name in FACTORIES:
                raise ConfigError(f"{policy.where}.NAME: there is a policy {name!r} already")
            found[name] = policy
    return found


def _inside(file: str, repository: Path) -> Path:
    path = (repository / file).resolve()
    if not path.is_relative_to(repository.resolve()):
        raise ConfigError(f"policy_files: {file!r} leads out of the repository: move the file into it")
    if not path.is_file():
        raise ConfigError(f"policy_files: there is no file {path}")
    return path


def _policies(file: str, path: Path) -> dict[str, FilePolicy]:
    module = _executed(path)
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and "NAME" in vars(kind)
    ]
    if not kinds:
        raise ConfigError(f'{file}: has no policy: give its class a name, e.g. NAME = "{path.stem}"')
    policies = [FilePolicy(f"{file}: {kind.__name__}", kind) for kind in kinds]
    return {_checked(policy.where, policy.kind): policy for policy in policies}


def _executed(path: Path) -> ModuleType:
    name = f"policy_file_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: not a Python file: its name must end in .py")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"{path}: {type(error).__name__}: {error}") from error
    return module


def _checked(where: str, kind: type) -> str:
    """The name of policy class `kind`, which has all that a router needs."""
    name = vars(kind)["NAME"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(f"{where}.NAME: {name!r} must be small letters, digits and _, a letter first")
    _check_signature(f"{where}.__init__", kind, ("place", "spec"))
    for method, arguments in METHODS.items():
        function = getattr(kind, method, None)
        if not callable(function):
            raise ConfigError(f"{where}.{method}: is missing: derive the class from BaseRouter")
        _check_signature(f"{where}.{method}", function, ("self", *arguments))
    return name


def _check_signature(where: str, function: object, arguments: tuple[str, ...]) -> None:
    assert callable(function), where
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        wanted = ", ".join(argument for argument in arguments if argument != "self")
        raise ConfigError(f"{where}: must take ({wanted}): {error}") from error
