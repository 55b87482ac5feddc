"""Runs tritonserver (the wheel `nvidia-pytriton`, or a container's) over a model repository.

Owns one server process, the backend folder laid out for it and its shared-memory prefix; leaves none
of them behind. It never touches a process, port or shared-memory region that it did not create.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from tools.metrics_page import samples_in
from tools.serving.ending import wait_for_end
from tools.triton_guard import DONE, sweep
from tools.triton_layout import (
    LOOPBACK,
    ROOT,
    SHM,
    STUB,
    TOKEN_ROUTER_BACKEND,
    Ports,
    ServerError,
    chosen_ports,
    installation,
    lay_out_backends,
    server_environment,
    stub_source,
    wheel,
)

__all__ = [
    "LOOPBACK",
    "SHM",
    "Ports",
    "ServerError",
    "ServerOptions",
    "TritonServer",
    "installation",
    "server_environment",
    "stub_source",
    "wheel",
]
HTTP_THREADS = 64
"""Triton's HTTP front drops the end of a stream, or its FINAL, when about 280 responses wait for one of its
threads (2.51, seen with a bare model; gRPC loses none). More threads than the 8 of its default leave fewer
streams to each; the fronts' coalescing does the rest."""
SOCKETS = "TOKEN_ROUTER_RUN_DIR"
"""Environment key of the folder in which our models find each other."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What to serve and how."""

    repository: Path
    run_dir: Path
    """Created if missing; holds the backend folder and the log."""
    ports: Ports = field(default_factory=Ports)
    host: str = LOOPBACK
    """Address that the three ports are bound to."""
    backends: tuple[Path, ...] = (TOKEN_ROUTER_BACKEND,)
    load_models: tuple[str, ...] | None = None
    """None: load everything at start. A tuple: explicit model control, these loaded at start."""
    awaited_fronts: tuple[str, ...] | None = None
    """Fronts that must hear every subserver before the server counts as ready; None: all that are loaded."""
    exit_timeout_s: int = 30
    ready_s_max: float = 120.0
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


class TritonServer:
    """One tritonserver on this host, from `start()` to `stop()`."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.ports = options.ports
        self.shm_prefix = f"token_router_{os.getpid()}_{secrets.token_hex(4)}_"
        self._fronts = fronts(options.repository, options.load_models)
        if options.awaited_fronts is not None:
            self._fronts = options.awaited_fronts
        self.log_path = options.run_dir / "tritonserver.log"
        self._sockets: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> TritonServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def http_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    @property
    def grpc_address(self) -> str:
        return f"{LOOPBACK}:{self.ports.grpc}"

    @property
    def metrics_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.metrics}/metrics"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns once every model is ready; ServerError names what went wrong otherwise."""
        self.ports = chosen_ports(self.options.ports)
        folder = lay_out_backends(self.options.run_dir / "backends", self.options.backends)
        self._log = self.log_path.open("wb")
        self._sockets = Path(tempfile.mkdtemp(prefix="token_router-"))
        self._process = subprocess.Popen(
            self._command(folder),
            env=server_environment({SOCKETS: str(self._sockets), **self.options.environment}),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._guard = self._guarded_by(self._process.pid)
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Drain, then end the server and whatever it started; sweep its shared memory. Idempotent."""
        if self._process is not None:
            self._end(self._process)
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None
        if self._sockets is not None:
            sweep(SHM, self.shm_prefix, self._sockets)
            self._sockets = None
        if self._guard is not None:
            self._guard.communicate(DONE)
            self._guard = None

    def kill(self) -> None:
        """End it and whatever it started, at once; from a signal handler, too. `stop` sweeps up after it."""
        if self.is_alive:
            os.killpg(self.pid, signal.SIGKILL)

    def stubs(self) -> dict[str, int]:
        """Process id of each model's Python process, by model name."""
        found = {}
        for pid in children(self.pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            model = stub_model(words)
            if model is not None:
                found[model] = pid
        return found

    def log_tail(self, lines: int = 25) -> str:
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _command(self, backends: Path) -> list[str]:
        command = [
            str(installation().binary),
            f"--model-repository={self.options.repository.resolve()}",
            f"--backend-directory={backends}",
            "--disable-auto-complete-config",
            f"--exit-timeout-secs={self.options.exit_timeout_s}",
            f"--http-thread-count={HTTP_THREADS}",
            f"--backend-config=python,shm-region-prefix-name={self.shm_prefix}",
            f"--backend-config=token_router,shm-region-prefix-name={self.shm_prefix}",
        ]
        for name in ("http", "grpc", "metrics"):
            command += [f"--{name}-address={self.options.host}", f"--{name}-port={getattr(self.ports, name)}"]
        if self.options.load_models is not None:
            command.append("--model-control-mode=explicit")
            command += [f"--load-model={name}" for name in self.options.load_models]
        return [*command, *self.options.arguments]

    def _guarded_by(self, group: int) -> subprocess.Popen[bytes]:
        """A process that cleans up in our place should we be killed."""
        what = [str(group), str(SHM), self.shm_prefix, str(self._sockets)]
        command = [sys.executable, "-m", "tools.triton_guard", *what]
        return subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, start_new_session=True)

    def _wait_ready(self) -> None:
        assert self._process is not None
        turn_s = 0.1
        for _ in range(round(self.options.ready_s_max / turn_s)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(turn_s)
                raise ServerError(f"tritonserver ended with status {status}\n{self._cause()}")
            if self.is_ready():
                return
        raise ServerError(
            f"not ready after {self.options.ready_s_max:g} s: a model is not loaded, or one of the fronts "
            f"{list(self._fronts)} does not hear every subserver\n{self._cause()}"
        )

    def is_ready(self) -> bool:
        """Every model is loaded, and every front hears every subserver. Triton's own readiness stays 200 when
        a model's process is dead; this does not."""
        if self._get(self.ports.http, "/v2/health/ready") is None:
            return False
        page = self._get(self.ports.metrics, "/metrics") or ""
        return all(hears_everybody(door, page) for door in self._fronts)

    def _get(self, port: int, path: str) -> str | None:
        """The page, or None while there is none."""
        connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read().decode() if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _cause(self) -> str:
        text = self.log_path.read_text(errors="replace")
        errors = [line for line in text.splitlines() if line.startswith("E") or "| UNAVAILABLE" in line]
        return "\n".join(errors[:10]) or self.log_tail()

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.terminate()
            wait_for_end(process, self.stubs, self.options.exit_timeout_s + 10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fronts(repository: Path, loaded: tuple[str, ...] | None) -> tuple[str, ...]:
    """Models of `repository` that have the role `front`."""
    configs = sorted(repository.glob("*/config.pbtxt"))
    names = [path.parent.name for path in configs if 'string_value: "front"' in path.read_text()]
    return tuple(name for name in names if loaded is None or name in loaded)


def hears_everybody(door: str, page: str) -> bool:
    """Does the metrics page say that the front `door` hears every subserver."""
    ups = [one.value for one in samples_in(page) if one.name == "peer_up" and one.labels["door"] == door]
    return bool(ups) and all(ups)


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, task.read_text().split())
    return found


def stub_model(words: list[str]) -> str | None:
    """Which model a process with this command line runs, None for what is no stub of Triton's. The line ends
    in the instance's name, `<model>_<group>_<instance>`."""
    if not words[0].endswith(STUB):
        return None
    instance = next((word for word in words if word.endswith("_0")), "")
    return instance.rsplit("_", 2)[0]
