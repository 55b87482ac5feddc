"""Ends a tritonserver whose launcher was killed, and sweeps what it leaves.

Started by `tools.triton_server` beside each server. It waits on a pipe from the launcher: a word means that
the launcher has cleaned up itself, the end of the pipe without one means that the launcher is gone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

DONE = b"done"


def sweep(shm: Path, prefix: str, sockets: Path) -> None:
    """Remove one server's shared memory and its folder of sockets."""
    for region in shm.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)
    shutil.rmtree(sockets, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Arguments: process group of the server, folder and prefix of its shared memory, its sockets' folder."""
    group, shm, prefix, sockets = sys.argv[1:] if argv is None else argv
    if sys.stdin.buffer.read() == DONE:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(group), signal.SIGKILL)
    sweep(Path(shm), prefix, Path(sockets))
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
