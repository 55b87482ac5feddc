"""Runs the steps of a Dockerfile in clean roots, one folder per stage.

Owns the folders below the one it is given and writes nowhere else. A step that fails is a BuildError with its
line and the end of what it printed; nothing is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.image.clean_root import Inside, entering
from tools.image.context import files
from tools.image.dockerfile import Dockerfile, Instruction, Stage, expanded
from tools.image.pip_settings import PipSettings
from tools.image.settings import ImageSettings, applied

DEBIAN = "debian:"
LOG_LINES = 25
HOSTS_FILES = ("/etc/resolv.conf", "/etc/hosts")


class BuildError(Exception):
    """A step could not be run; names it and says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """A built stage: its files and what is said about them."""

    root: Path
    settings: ImageSettings


@dataclass(slots=True)
class Build:
    """One run over one Dockerfile."""

    context: Path
    folder: Path
    """Made by the caller, deleted by the caller."""
    arguments: Mapping[str, str]
    pip: PipSettings
    say: Callable[[str], None]
    mirror: str = ""
    images: dict[str, Image] = field(default_factory=dict)

    def run(self, file: Dockerfile) -> Image:
        """Every stage in order; the last one is the image."""
        for place, stage in enumerate(file.stages):
            image = self._started(stage, place)
            for item in stage.instructions:
                self.say(f"[{stage.name or place}] {item}")
                image = self._stepped(item, image)
            self.images[stage.name or str(place)] = image
        return image

    def _started(self, stage: Stage, place: int) -> Image:
        above = self.images.get(stage.base)
        root = self.folder / f"stage-{place}"
        self._copied_root(above.root if above else self._base(stage.base), root)
        return Image(root, above.settings if above else ImageSettings())

    def _base(self, name: str) -> Path:
        """A Debian base made from packages; it is what `debian:<suite>-slim` is made from too."""
        if not name.startswith(DEBIAN):
            raise BuildError(f"FROM {name}: only debian:<suite>-slim can be made from packages here")
        suite = name.removeprefix(DEBIAN).removesuffix("-slim")
        root = self.folder / f"base-{suite}"
        if not root.exists():
            self.say(f"[base] debootstrap {suite}")
            words = ["debootstrap", "--variant=minbase", suite, str(root), *filter(None, [self.mirror])]
            self._called(words, f"debootstrap {suite}")
        return root

    def _copied_root(self, source: Path, target: Path) -> None:
        self._called(["cp", "--archive", "--reflink=auto", str(source), str(target)], f"copy of {source}")

    def _stepped(self, item: Instruction, image: Image) -> Image:
        settings = applied(item, image.settings, self.arguments)
        after = Image(image.root, settings)
        if item.word == "RUN":
            self._ran(item, after)
        elif item.word == "COPY":
            self._copied(item, after)
        elif item.word == "WORKDIR":
            _inside(image.root, settings.workdir).mkdir(parents=True, exist_ok=True)
        return after

    def _ran(self, item: Instruction, image: Image) -> None:
        settings = image.settings
        inside = Inside(
            {**settings.variables, "HOME": "/root"}, settings.user, settings.workdir, self._binds(item)
        )
        words = entering(image.root, settings.run_command(item), inside)
        self._called(words, f"line {item.line}: {item}")

    def _binds(self, item: Instruction) -> tuple[tuple[Path, str], ...]:
        """The machine's name service, and pip's settings where the step mounts the secret `pip`."""
        binds = [(Path(name), name) for name in HOSTS_FILES if Path(name).exists()]
        mount = dict(word.partition("=")[::2] for word in item.flag("mount").split(","))
        if mount.get("id") == "pip" and self.pip.text:
            secret = self.folder / "pip.conf"
            secret.write_text(self.pip.text)
            binds += [(secret, mount["target"]), *((path, str(path)) for path in self.pip.paths)]
        return tuple(binds)

    def _copied(self, item: Instruction, image: Image) -> None:
        *sources, target = expanded(item.value, image.settings.variables).split()
        place = _inside(image.root, os.path.join(image.settings.workdir, target))
        origin = item.flag("from")
        if origin:
            for source in sources:
                self._copied_tree(_inside(self.images[origin].root, source), place)
        elif not sum(self._from_context(source, place) for source in sources):
            raise BuildError(f"line {item.line}: {item}: no such file in the context (see .dockerignore)")

    def _copied_tree(self, source: Path, place: Path) -> None:
        """As Docker does: the contents of a folder, not the folder itself."""
        place.mkdir(parents=True, exist_ok=True)
        self._called(["cp", "--archive", f"{source}/.", str(place)], f"COPY of {source}")

    def _from_context(self, source: str, place: Path) -> int:
        """How many files were copied: a file, or what is below a folder."""
        count = 0
        for path in files(self.context):
            if source == "." or path.is_relative_to(source):
                inner = path if source == "." else path.relative_to(source)
                to = place / (path.name if str(inner) == "." else inner)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.context / path, to)
                count += 1
        return count

    def _called(self, words: list[str], what: str) -> None:
        log = self.folder / "build.log"
        with log.open("ab") as out:
            begun = out.tell()
            status = subprocess.call(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=_bare()
            )
        if status:
            tail = log.read_bytes()[begun:].decode(errors="replace").splitlines()[-LOG_LINES:]
            raise BuildError(f"{what}\nended with status {status}:\n" + "\n".join(tail))


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _bare() -> dict[str, str]:
    """This machine's environment, in a language whose messages can be read everywhere."""
    return {**os.environ, "LC_ALL": "C"}
