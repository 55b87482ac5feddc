"""The `ModelRunner` of an engine that lives in processes of its own.

Starts them, hands every plan to rank 0, and knows within a moment when one of them dies. Must never hold
a tensor. The invariant: once a rank is lost, its KV cache is gone with it, so the engine is lost for good
and every later step says so at once.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from python_backend.runner.base import RunnerInfo
from python_backend.runner.ranks.base import Launcher, Workers
from python_backend.runner.ranks.frames import pack_plan, unpack_info, unpack_output
from python_backend.runner.ranks.worker import ANSWER
from router_backend.core.errors import ConfigError, EngineLostError, RunnerError
from router_backend.scheduler.batch import BatchPlan, StepOutput

SOCKET = "rank0"
LOOK_S = 0.1
"""How often a waiting subserver looks after its ranks: a death is known at most that late."""
START_S_MAX = 1800.0
"""Loading tens of gigabytes from a slow disk takes minutes."""
GRACE_S = 0.5
"""What rank 0 says of a failure is worth waiting for when another rank has ended already."""
STEP_S_MAX = 300.0
"""A step that takes longer hangs: two ranks wait for each other."""


@dataclass(frozen=True, slots=True)
class RankCommand:
    """How a rank is started: `command` with the path of rank 0's socket behind it."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class RankedRunner:
    """`info` is rank 0's."""

    info: RunnerInfo

    def __init__(self, launcher: Launcher, command: RankCommand) -> None:
        """Returns once every rank has loaded its engine; ConfigError says what kept one from it."""
        self._folder = tempfile.TemporaryDirectory(prefix="token_router-ranks-")
        self._connection: Connection | None = None
        self._workers: Workers | None = None
        try:
            self._start(launcher, command)
        except (RunnerError, ConfigError) as error:
            self.close()
            raise ConfigError(_bare(error)) from error

    def execute(self, plan: BatchPlan) -> StepOutput:
        connection = self._connection
        if connection is None:
            raise EngineLostError("the ranks of this engine are gone")
        try:
            failure = self._failure()
            if failure is not None:
                raise EngineLostError(failure)
            connection.send_bytes(pack_plan(plan))
            return unpack_output(self._answer(STEP_S_MAX))
        except EngineLostError:
            self.close()
            raise
        except ConnectionError as error:
            self.close()
            raise EngineLostError(f"rank 0 hung up in step {plan.step}: {error}") from error

    def close(self) -> None:
        """Ends every rank. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._workers is not None:
            self._workers.stop()
        with contextlib.suppress(OSError):  # already removed
            self._folder.cleanup()

    def _start(self, launcher: Launcher, command: RankCommand) -> None:
        path = str(Path(self._folder.name) / SOCKET)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            self._workers = launcher.launch([*command.command, path], command.environment)
            self._connection = self._accepted(listener)
        self.info = unpack_info(self._answer(START_S_MAX))

    def _failure(self) -> str | None:
        assert self._workers is not None, "no rank was started"
        return self._workers.failure()

    def _accepted(self, listener: socket.socket) -> Connection:
        give_up = time.monotonic() + START_S_MAX
        while time.monotonic() < give_up:
            failure = self._failure()
            listener.settimeout(GRACE_S if failure else LOOK_S)
            with contextlib.suppress(TimeoutError):
                found, _ = listener.accept()
                found.setblocking(True)
                return Connection(found.detach())
            if failure is not None:
                raise ConfigError(failure)
        raise ConfigError(f"rank 0 has not loaded its engine in {START_S_MAX:g} s")

    def _answer(self, wait_s_max: float) -> bytes:
        """Rank 0's next answer; RunnerError if it is a failure."""
        assert self._connection is not None, "nobody to ask"
        give_up = time.monotonic() + wait_s_max
        while not self._connection.poll(LOOK_S):
            failure = self._failure()
            if failure is not None and not self._connection.poll(GRACE_S):
                raise EngineLostError(failure)
            if time.monotonic() > give_up:
                raise EngineLostError(f"no answer from rank 0 in {wait_s_max:g} s")
        try:
            frame = self._connection.recv_bytes()
        except EOFError as error:
            raise EngineLostError(self._failure() or "rank 0 hung up") from error
        if frame[:1] != ANSWER:
            raise RunnerError(frame[1:].decode())
        return frame[1:]


def _bare(error: RunnerError | ConfigError) -> str:
    return str(error).removeprefix(f"{error.code}: ")
