"""Triton's entry: picks the role that config.pbtxt names and forwards three calls.

Must never decide anything itself, and imports only what its role needs: a front loads no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from python_backend.roles.parent_watch import ParentWatch
from python_backend.roles.place import Place, place_of
from python_backend.server import log
from router_backend.core.errors import ConfigError

ROLES = {
    "front": ("python_backend.roles.front_model", "front_door"),
    "subserver": ("python_backend.roles.subserver_model", "subserver_door"),
    "preprocessing": ("python_backend.roles.preprocessing", "preprocessing"),
    "postprocessing": ("python_backend.roles.postprocessing", "postprocessing"),
}
"""Role to where it is composed; imported on use."""


class Role(Protocol):
    """What a Triton model of ours is made of."""

    def start(self) -> None: ...

    def execute(self, requests: Sequence[Any]) -> list[Any] | None: ...

    def stop(self) -> None: ...


class TritonPythonModel:
    """One instance of one Triton model."""

    def initialize(self, args: Mapping[str, str]) -> None:
        place = place_of(args)
        log.install(place.name)
        self._watch = ParentWatch()
        self._role = self.compose(place)
        self._role.start()
        self._watch.start()

    def compose(self, place: Place) -> Role:
        """The parts of the role that the parameter `role` names."""
        name = place.required("role")
        if name not in ROLES:
            raise ConfigError(f"{place.name}: parameter role: {name!r} is not one of {sorted(ROLES)}")
        module, build = ROLES[name]
        role: Role = getattr(import_module(module), build)(place)
        return role

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        return self._role.execute(requests)

    def finalize(self) -> None:
        self._role.stop()
        self._watch.stop()
