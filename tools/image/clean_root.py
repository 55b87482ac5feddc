"""A folder that a process takes for its whole machine: mounts and processes of its own, no Docker.

Owns the command lines of `unshare` and `chroot`. Invariant: what is mounted inside is gone with the last
process of the namespace, so that deleting the folder afterwards deletes nothing of this machine.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = {
    "debootstrap": "debootstrap",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "chroot": "coreutils",
    "ip": "iproute2",
}
"""What must be there, and the Debian package that has it."""
DEVICES = ("null", "zero", "full", "random", "urandom")
SHM_SIZE = "1g"

_ENTER = """
set -e
root=$1 shm=$2 network=$3; shift 3
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in {devices}; do
  : > "$root/dev/$name"; mount --bind "/dev/$name" "$root/dev/$name"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mkdir -m 1777 "$root/dev/shm"; mount -t tmpfs -o mode=1777,size="$shm" tmpfs "$root/dev/shm"
if [ "$network" = own ]; then ip link set lo up; fi
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then
    mkdir -p "$root$2"
  else
    mkdir -p "$root$(dirname "$2")"
    [ -e "$root$2" ] || : > "$root$2"
  fi
  mount --bind -o ro "$1" "$root$2"
  shift 2
done
shift
exec "$@"
"""


class RootError(Exception):
    """This machine cannot make a clean root; the message names the cure."""


@dataclass(frozen=True, slots=True)
class Inside:
    """How a command sees the root."""

    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = "0:0"
    workdir: str = "/"
    binds: tuple[tuple[Path, str], ...] = ()
    """Paths of this machine and where they are seen, read only."""
    has_own_network: bool = False
    """A loopback interface of its own, and no other."""


def missing() -> list[str]:
    """What keeps this machine from making a clean root, each with its cure."""
    found = [
        f"{program} is not installed: apt-get install {package}"
        for program, package in PROGRAMS.items()
        if shutil.which(program) is None
    ]
    return found if os.geteuid() == 0 else [*found, "only root may mount and chroot: run it with sudo"]


def entering(root: Path, command: tuple[str, ...], inside: Inside) -> list[str]:
    """The command line that runs `command` with `root` as its machine; SIGKILL to it ends all of it."""
    network = "own" if inside.has_own_network else "host"
    script = _ENTER.format(devices=" ".join(DEVICES))
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--ipc"]
    return [
        *("unshare", *spaces, *(["--net"] if inside.has_own_network else [])),
        *("sh", "-c", script, "sh", str(root), SHM_SIZE, network),
        *(word for source, target in inside.binds for word in (str(source), target)),
        "--",
        *changed_root(root, command, inside),
    ]


def changed_root(root: Path, command: tuple[str, ...], inside: Inside) -> list[str]:
    """`chroot`, user, environment and folder alone: also for joining a root that is already entered."""
    environment = [f"{key}={value}" for key, value in inside.environment.items()]
    return [
        *("chroot", f"--userspec={inside.user}", str(root), "/usr/bin/env", "-i", *environment),
        *("/bin/sh", "-c", 'cd "$0" && exec "$@"', inside.workdir, *command),
    ]


def joining(pid: int, command: list[str]) -> list[str]:
    """The command line that runs `command` beside process `pid`, in its namespaces."""
    return ["nsenter", f"--target={pid}", "--mount", "--pid", "--net", *command]
