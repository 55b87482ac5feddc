"""Where tritonserver lies, the packaged one or a container's, and what it needs around it.

Owns the backend folder's layout, the server's environment and the choice of ports. Starts nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOKEN_ROUTER_BACKEND = ROOT / "docker" / "backends" / "token_router"
LOOPBACK = "127.0.0.1"
STUB = "triton_python_backend_stub"
SHM = Path("/dev/shm")
SERVER_ROOT = "TRITON_SERVER_ROOT"
"""Environment key of a container's server folder, used in place of the wheel's; our Dockerfile sets it."""


class ServerError(Exception):
    """The server cannot run here; the message names the cause and, where known, the cure."""


@dataclass(frozen=True, slots=True)
class Ports:
    """0 = any free port."""

    http: int = 0
    grpc: int = 0
    metrics: int = 0


@dataclass(frozen=True, slots=True)
class Installation:
    """One tritonserver, with the Python backend that belongs to it."""

    binary: Path
    python_backend: Path
    stub: Path
    libraries: tuple[Path, ...] = ()
    """Folders that the loader must see besides its own."""


def installation() -> Installation:
    """The server that runs here; ServerError when there is none."""
    root = os.environ.get(SERVER_ROOT)
    return _in_container(Path(root)) if root else _in_wheel()


def _in_wheel() -> Installation:
    folder = wheel()
    libraries = (folder.parent.parent / "nvidia_pytriton.libs",)
    return Installation(
        folder / "bin" / "tritonserver", folder / "backends" / "python", stub_source(), libraries
    )


def _in_container(root: Path) -> Installation:
    found = Installation(
        root / "bin" / "tritonserver", root / "backends" / "python", root / "backends" / "python" / STUB
    )
    for path in (found.binary, found.stub):
        if not path.exists():
            raise ServerError(f"{SERVER_ROOT} is {root}, but {path} is not there: unset it to use the wheel")
    return found


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
    found, python = installation(), folder / "python"
    shutil.copytree(found.python_backend, python, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(found.stub, python / STUB)
    for backend in backends:
        shutil.copytree(backend, folder / backend.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder.resolve()


def server_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This environment's Python and the server's libraries first."""
    libraries = [*map(str, installation().libraries), os.environ.get("LD_LIBRARY_PATH", "")]
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
            name: stack.enter_context(bound(name, getattr(wanted, name))).getsockname()[1]
            for name in ("http", "grpc", "metrics")
        }
    return Ports(**taken)


def bound(name: str, port: int, host: str = LOOPBACK) -> socket.socket:
    """A socket that holds the port, 0 = any free one; ServerError names one that cannot be had."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServerError(
            f"{name} port {port} cannot be used ({error.strerror}): set {name.upper()}_PORT, 0 = any free one"
        ) from error
    return listener
