"""Where the endpoints of one server live: a private folder with one socket file each.

Owns the choice of the folder, its permissions, and the removal of folders that dead servers left.
Must never touch a folder that another user owns. The invariant: a folder handed out is 0700 and ours.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from router_backend.core.errors import ConfigError

ENVIRONMENT_KEY = "TOKEN_ROUTER_RUN_DIR"
PATH_BYTES_MAX = 107
"""sun_path of a Unix socket holds 108 bytes, the last of which is zero (unix(7))."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def run_dir(configured: str, environment: Mapping[str, str], server_pid: int) -> Path:
    """The folder that every process of this server computes alike; it need not exist yet.

    Environment before configuration before `<tmp>/token_router-<uid>/<server_pid>`. `server_pid` is
    what the processes have in common: their parent, tritonserver.
    """
    chosen = environment.get(ENVIRONMENT_KEY) or configured
    if chosen:
        return Path(chosen).absolute()
    return Path(tempfile.gettempdir()) / f"token_router-{os.getuid()}" / str(server_pid)


def open_run_dir(path: Path) -> Path:
    """Make `path` with access for nobody else, and tidy dead neighbours; ConfigError if it is not ours."""
    _make_private(path.parent if path.name.isdigit() else path)
    _make_private(path)
    if path.name.isdigit():
        tidy_dead(path.parent)
    return path


def tidy_dead(base: Path) -> None:
    """Remove the folders under `base` that are named by the pid of a process that is gone."""
    for folder in base.iterdir():
        if folder.name.isdigit() and not is_alive(int(folder.name)):
            shutil.rmtree(folder, ignore_errors=True)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def socket_path(folder: Path, endpoint: str) -> Path:
    """The socket file of `endpoint`; ConfigError for a name or a length that cannot be a socket."""
    if not _NAME.fullmatch(endpoint):
        raise ConfigError(f"endpoint: {endpoint!r} must be 1 to 64 letters, digits, '_', '-' or '.'")
    path = folder / f"{endpoint}.ipc"
    size = len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise ConfigError(
            f"run_dir: {path} has {size} bytes, a socket path may have {PATH_BYTES_MAX}: "
            f"set run_dir or {ENVIRONMENT_KEY} to a shorter folder"
        )
    return path


def _make_private(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat(follow_symlinks=False)
    except OSError as error:
        raise ConfigError(f"run_dir: cannot make {path}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"run_dir: {path} is not a folder")
    if found.st_uid != os.getuid():
        raise ConfigError(f"run_dir: {path} belongs to user {found.st_uid}: set run_dir to another folder")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(f"run_dir: others may enter {path}: chmod 700 it, or set run_dir to another folder")
