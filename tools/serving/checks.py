"""What must be true of this machine before the server is started, each with its cure.

Reads the machine and changes nothing. A problem is one sentence that names what is missing and what to do;
all problems are told at once.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from python_backend.config import Deployment
from tools.engines.placed import engine_problems
from tools.triton_server import SHM, installation, server_environment

SHM_BYTES_PER_MODEL = 4 * 1024 * 1024
"""Triton's Python backend takes 1 MiB per process at start and grows by 1 MiB with long prompts."""

DEBIAN_PACKAGES = {
    r"libpython(3\.\d+)\.so": r"libpython\1",
    r"libnuma\.so": "libnuma1",
    r"libgomp\.so": "libgomp1",
    r"libstdc\+\+\.so": "libstdc++6",
    r"libexpat\.so": "libexpat1",
    r"libb64\.so": "libb64-0d",
}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a server needs of the machine."""

    binaries: tuple[Path, ...]
    environment: Mapping[str, str]
    shm_bytes: int


def needs_of(models: int) -> Needs:
    """Of Triton with `models` Python processes; ServerError when it is not installed."""
    found = installation()
    return Needs((found.binary, found.stub), server_environment({}), models * SHM_BYTES_PER_MODEL)


def problems(needs: Needs) -> list[str]:
    """Everything that keeps a server with these needs from running here."""
    libraries = [name for path in needs.binaries for name in missing_libraries(path, needs.environment)]
    free = os.statvfs(SHM).f_bavail * os.statvfs(SHM).f_frsize if SHM.is_dir() else 0
    return [*map(library_problem, dict.fromkeys(libraries)), *shm_problems(free, needs.shm_bytes)]


def missing_libraries(binary: Path, environment: Mapping[str, str]) -> list[str]:
    """Shared libraries that the loader does not find for `binary`."""
    listed = subprocess.run(
        ["ldd", str(binary)], env=dict(environment), capture_output=True, text=True, check=False
    )
    return [line.split()[0] for line in listed.stdout.splitlines() if line.endswith("not found")]


def library_problem(name: str) -> str:
    """How to get the shared library `name` on Debian or Ubuntu."""
    for pattern, package in DEBIAN_PACKAGES.items():
        if match := re.match(pattern, name):
            return f"the shared library {name} is missing: apt-get install {match.expand(package)}"
    return f"the shared library {name} is missing: install the package that holds it (apt-file search {name})"


def shm_problems(free: int, needed: int) -> list[str]:
    if free >= needed:
        return []
    return [
        f"/dev/shm has {_mib(free)} MiB free, {_mib(needed)} MiB are needed: "
        "mount -o remount,size=1g /dev/shm (in a container: docker run --shm-size=1g)"
    ]


def weight_problems(deployment: Deployment, repository: Path) -> list[str]:
    """Models of the deployment whose files are not there, or not what they must be."""
    found: list[str] = []
    for model in deployment.models:
        if model.engine == "trtllm":
            found += engine_problems(model, repository)
        elif model.engine == "torch":
            found += _weights(model.name, repository / (model.model_dir or f"{model.name}/1"))
    return found


def _weights(name: str, folder: Path) -> Iterable[str]:
    wanted = ("config.json", "tokenizer.json")
    absent = [file for file in wanted if not (folder / file).is_file()]
    if not list(folder.glob("*.safetensors")):
        absent.append("*.safetensors")
    if absent:
        yield (
            f"model {name}: {folder} has no {', no '.join(absent)}: name a Hugging Face directory with "
            f"{name.upper()}=..., or make the demo pair with python -m tools.train_demo_pair"
        )


def told(found: Sequence[str]) -> str:
    """The problems as one message."""
    return "\n".join(f"  - {problem}" for problem in found)


def _mib(size: int) -> int:
    return -(-size // (1024 * 1024))
