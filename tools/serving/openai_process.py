"""The OpenAI server beside Triton: a process of its own, from start to end.

Owns that process. Must never keep Triton from starting, serving or ending: all that can fail here is said and
survived. The process ends by itself when this one is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from tools.triton_layout import LOOPBACK, ServerError, bound

ROOT = Path(__file__).resolve().parent.parent.parent
GRACE_S = 10.0
"""What it may need beyond the drain, before it is killed."""
START_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class OpenAIOptions:
    """Where it listens, how long open answers may take at its end, and who may ask."""

    port: int = 8003
    host: str = LOOPBACK
    drain_s: int = 30
    api_keys: Path | None = None

    def arguments(self, triton: str) -> list[str]:
        """Of `tools.openai_server`."""
        keys = [] if self.api_keys is None else ["--api-keys", str(self.api_keys.resolve())]
        return [
            *("--triton", triton, "--host", self.host, "--port", str(self.port)),
            *("--drain-s", str(self.drain_s), "--parent-pid", str(os.getpid()), *keys),
        ]


@dataclass(slots=True)
class OpenAIProcess:
    """One server process; `log` takes what it has to say."""

    options: OpenAIOptions
    log: Path
    url: str = ""
    _process: subprocess.Popen[str] | None = field(default=None, init=False)
    _log: IO[str] | None = field(default=None, init=False)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, triton: str) -> None:
        """Returns when it listens; ServerError with its own words if it does not.

        A later start, after `stop`, takes the port that the first one got.
        """
        self._log = self.log.open("a")
        command = [sys.executable, "-m", "tools.openai_server", *self.options.arguments(triton)]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        said = self._first_line(self._process)
        if not said:
            self.kill()
            self.stop()
            last = self.log.read_text().strip() or f"it said nothing within {START_S_MAX:g} s"
            raise ServerError(f"the OpenAI server did not start: {last}")
        self.url = said[-1].removesuffix("/v1")
        self.options = replace(self.options, port=int(self.url.rpartition(":")[2]))

    @staticmethod
    def _first_line(process: subprocess.Popen[str]) -> list[str]:
        """Its words; none if it ends or says nothing for too long."""
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_S_MAX)
        return process.stdout.readline().split() if ready else []

    def stop(self) -> None:
        """Let open answers finish, then end it. Idempotent."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self.options.drain_s + GRACE_S)
            self.kill()
            self._process.communicate()
            self._process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def kill(self) -> None:
        """At once; from a signal handler, too."""
        if self.is_alive and self._process is not None:
            self._process.send_signal(signal.SIGKILL)


def must_be_free(host: str, port: int) -> None:
    """ServerError if the port is taken, before anything was started."""
    bound("openai", port, host).close()
