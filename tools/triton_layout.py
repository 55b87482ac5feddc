"""Where the packaged tritonserver lies, and what this machine must offer it.

Owns the backend folder's layout, the server's environment, free ports, and the checks whose failure Triton
would only report as a model that does not load. Starts nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOKEN_ROUTER_BACKEND = ROOT / "docker" / "backends" / "token_router"
LOOPBACK = "127.0.0.1"
STUB = "triton_python_backend_stub"
SHM = Path("/dev/shm")
SHM_BYTES_MIN = 48 * 2**20
"""One MB per model at start; it grows with the largest request and never shrinks."""


class ServerError(Exception):
    """The server cannot run here; the message names the cause and, where known, the cure."""


@dataclass(frozen=True, slots=True)
class Ports:
    """0 = any free port."""

    http: int = 0
    grpc: int = 0
    metrics: int = 0


def wheel() -> Path:
    """The folder of the packaged server inside this Python environment."""
    for folder in map(Path, sys.path):
        if (folder / "pytriton" / "tritonserver" / "bin" / "tritonserver").exists():
            return folder / "pytriton" / "tritonserver"
    raise ServerError("tritonserver is not installed: pip install nvidia-pytriton==0.7.0 (make setup)")


def stub_source() -> Path:
    """The Python process of the running Python's version."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = wheel() / "python_backend_stubs" / version / STUB
    if not stub.exists():
        raise ServerError(f"nvidia-pytriton has no stub for Python {version}: {stub.parent.parent}")
    return stub


def lay_out_backends(folder: Path, backends: tuple[Path, ...]) -> Path:
    """A backend folder: Triton's Python backend with our stub inside, and each of `backends`."""
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "python"
    shutil.copytree(wheel() / "backends" / "python", python, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(stub_source(), python / STUB)
    for backend in backends:
        shutil.copytree(backend, folder / backend.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder.resolve()


def server_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This environment's Python and the wheel's libraries first."""
    site = wheel().parent.parent
    libraries = [str(site / "nvidia_pytriton.libs"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        **extra,
    }


def chosen_ports(wanted: Ports) -> Ports:
    """`wanted` with free ports for the zeros; ServerError names one that is taken."""
    with contextlib.ExitStack() as stack:
        taken = {
            name: stack.enter_context(_bound(name, getattr(wanted, name))).getsockname()[1]
            for name in ("http", "grpc", "metrics")
        }
    return Ports(**taken)


def _bound(name: str, port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise ServerError(
            f"{name} port {port} cannot be used ({error.strerror}): set {name.upper()}_PORT, 0 = any free one"
        ) from error
    return listener


def checked_host(shm: Path = SHM) -> None:
    """ServerError when a library of the stub is missing or /dev/shm is too small."""
    missing = missing_libraries(stub_source())
    if missing:
        raise ServerError(
            f"{STUB} needs {', '.join(missing)}: install the system's Python library "
            f"(Debian: apt-get install libpython{sys.version_info.major}.{sys.version_info.minor})"
        )
    free = shutil.disk_usage(shm).free
    if free < SHM_BYTES_MIN:
        raise ServerError(
            f"{shm} has {free >> 20} MB free, Triton needs {SHM_BYTES_MIN >> 20}: "
            f"mount -o remount,size=1g {shm}, or docker run --shm-size=1g"
        )


def missing_libraries(program: Path) -> list[str]:
    """Shared libraries that the loader does not find for `program`."""
    run = subprocess.run(
        ["ldd", str(program)], env=server_environment({}), capture_output=True, text=True, check=False
    )
    return [line.split()[0] for line in run.stdout.splitlines() if line.endswith("not found")]
