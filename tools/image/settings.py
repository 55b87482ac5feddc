"""What a Dockerfile says about the image beside its files: environment, user, folder, commands.

Pure: `applied` returns the settings after one instruction. Files are the business of `tools.image.build`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tools.image.dockerfile import Instruction, argument, expanded, pairs

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """As Docker would keep it in the image's configuration."""

    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Seen by RUN and by expansion while the stage is built, not in the image."""
    user: str = "0:0"
    workdir: str = "/"
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """What `$NAME` means: the environment wins over a build argument."""
        return {**self.arguments, **self.environment}

    def run_command(self, item: Instruction) -> tuple[str, ...]:
        """The words of a RUN, CMD or ENTRYPOINT."""
        return item.array or (*self.shell, item.value)


def applied(item: Instruction, settings: ImageSettings, given: Mapping[str, str]) -> ImageSettings:
    """`given` are the build arguments by name; an instruction about files changes nothing here."""
    if item.word == "ENV":
        added = pairs(item, settings.variables)
        return replace(settings, environment={**settings.environment, **added})
    if item.word == "ARG":
        name, value = argument(item, given)
        value = expanded(value, settings.variables)
        return replace(settings, arguments={**settings.arguments, name: value})
    return _configured(item, settings)


def _configured(item: Instruction, settings: ImageSettings) -> ImageSettings:
    if item.word == "WORKDIR":
        folder = posixpath.join(settings.workdir, expanded(item.value, settings.variables))
        return replace(settings, workdir=posixpath.normpath(folder))
    if item.word == "USER":
        return replace(settings, user=_with_group(expanded(item.value, settings.variables)))
    if item.word == "SHELL":
        return replace(settings, shell=item.array or settings.shell)
    if item.word == "ENTRYPOINT":
        return replace(settings, entrypoint=settings.run_command(item))
    if item.word == "CMD":
        return replace(settings, command=settings.run_command(item))
    if item.word == "EXPOSE":
        return replace(settings, ports=(*settings.ports, *item.value.split()))
    return replace(settings, healthcheck=_check(item)) if item.word == "HEALTHCHECK" else settings


def _check(item: Instruction) -> tuple[str, ...]:
    return Instruction("CMD", item.value.removeprefix("CMD").strip(), (), item.line).array or ()


def _with_group(user: str) -> str:
    return user if ":" in user else f"{user}:{user}"
