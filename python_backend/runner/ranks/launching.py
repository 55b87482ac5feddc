"""Starts the ranks of an engine, as one MPI job or as plain processes.

The invariant: no rank inherits the traces of an MPI job that this process may itself be part of
(`scrubbed`): a nested mpirun that sees them joins the wrong job or refuses to start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from router_backend.core.errors import ConfigError

RANK = "TOKEN_ROUTER_RANK"
RANKS = "TOKEN_ROUTER_RANKS"
TRACES = ("OMPI_COMM_WORLD_", "OMPI_MCA_orte_", "OMPI_UNIVERSE_", "ORTE_", "PMIX_", "PMI_")
PATIENCE_S = 5.0
"""How long a rank may take to end by itself."""
ORDERLY_S = 2.0
"""How long a launcher may take to end its ranks when it is told to."""


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what an MPI launcher leaves in the environment of its processes."""
    return {name: value for name, value in environment.items() if not name.startswith(TRACES)}


def interpreter() -> str:
    """The Python of this environment; Triton's stub is not one, though it runs Python."""
    named = Path(sys.executable or "python3")
    return str(named) if named.name.startswith("python") else shutil.which("python3") or "python3"


class Processes:
    """`Workers` as children of this process, each the leader of a process group."""

    def __init__(self, children: Sequence[subprocess.Popen[bytes]], noun: str) -> None:
        self._children = children
        self._noun = noun

    def failure(self) -> str | None:
        for index, child in enumerate(self._children):
            status = child.poll()
            if status is not None:
                return f"{self._noun.format(index)} ended {_ending(status)}"
        return None

    def stop(self) -> None:
        """Children whose connection was closed end by themselves; the others are killed with their group."""
        patience_s = PATIENCE_S if self.failure() is None else 0.0
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(patience_s)
        # A launcher that is told to end ends its ranks and waits for them; one that is killed cannot.
        for order in (signal.SIGTERM, signal.SIGKILL):
            self._tell_all(order)

    def _tell_all(self, order: signal.Signals) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, order)
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(ORDERLY_S if order is signal.SIGTERM else None)


def _ending(status: int) -> str:
    return f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Ordinary processes of this machine; each reads its rank in `TOKEN_ROUTER_RANK`."""

    size: int

    def launch(self, command: Sequence[str], environment: Mapping[str, str]) -> Processes:
        base = {**scrubbed(os.environ), **environment, RANKS: str(self.size)}
        children = [_started(command, {**base, RANK: str(rank)}) for rank in range(self.size)]
        return Processes(children, "rank {}")


@dataclass(frozen=True, slots=True)
class MpiLauncher:
    """One MPI job of `size` ranks; mpirun ends all of them when one dies, and then itself."""

    size: int

    def launch(self, command: Sequence[str], environment: Mapping[str, str]) -> Processes:
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            raise ConfigError(
                f"mpirun is not on PATH: {self.size} ranks need Open MPI, as in Triton's TensorRT-LLM images"
            )
        job = [mpirun, "--allow-run-as-root", "-n", str(self.size), *command]
        return Processes([_started(job, {**scrubbed(os.environ), **environment})], "the MPI job")


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
