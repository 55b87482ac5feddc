"""A built image started as a container would be, asked, and stopped.

Owns one process with its own processes, mounts and network. Invariant: after `stopped` none of it is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.image.build import Image
from tools.image.clean_root import Inside, changed_root, entering, joining
from tools.triton_server import children

READY_S_MAX = 180.0
END_S_MAX = 60.0
LOOK_S = 0.5
TAIL_LINES = 40

UNLOAD = "/v2/repository/models/small/unload"
"""An endpoint that must answer nobody who does not know the key."""

_POST = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
connection.request("POST", sys.argv[1], body="{}")
print(connection.getresponse().status)
"""
_ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", 8000, timeout=60)
connection.request("POST", "/v2/models/token_router/generate_stream", body=sys.argv[1])
answer = connection.getresponse()
for line in answer:
    sys.stdout.write(line.decode())
    sys.stdout.flush()
sys.exit(answer.status != 200)
"""


class TrialError(Exception):
    """The image does not do what it must; carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One running image."""

    image: Image
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def first_pid(self) -> int:
        """Process 1 of the image, by this machine's number."""
        found = children(self.process.pid)
        if not found:
            raise TrialError(f"the image's first process is gone\n{self.tail()}")
        return found[0]

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:])

    def joined(self, command: Sequence[str]) -> list[str]:
        """A command line that runs `command` inside, as the image's user and with its environment."""
        settings = self.image.settings
        inside = Inside(settings.environment, settings.user, settings.workdir)
        return joining(self.first_pid, changed_root(self.image.root, tuple(command), inside))

    def wait_ready(self) -> float:
        """Seconds until the image's own health check says so."""
        if not self.image.settings.healthcheck:
            raise TrialError("the image has no HEALTHCHECK in exec form: nothing says when it is ready")
        begun_at = time.monotonic()
        while time.monotonic() - begun_at < READY_S_MAX:
            if self.process.poll() is not None:
                raise TrialError(f"the image ended with status {self.process.returncode}\n{self.tail()}")
            check = subprocess.run(self.joined(self.image.settings.healthcheck), capture_output=True)
            if check.returncode == 0:
                return time.monotonic() - begun_at
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LOOK_S)
        raise TrialError(f"not healthy after {READY_S_MAX:g} s\n{self.tail()}")

    def asking(self, question: dict[str, object]) -> subprocess.Popen[str]:
        """A client inside, reading the answer's stream."""
        words = self.joined(["python3", "-c", _ASK, json.dumps(question)])
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def posted(self, path: str) -> int:
        """Status of an empty request that a stranger sends."""
        words = self.joined(["python3", "-c", _POST, path])
        answer = subprocess.run(words, capture_output=True, check=True, text=True)
        return int(answer.stdout)

    def stop(self) -> int:
        """SIGTERM to process 1, as `docker stop` does; the exit status."""
        os.kill(self.first_pid, signal.SIGTERM)
        return self.process.wait(END_S_MAX)


@contextlib.contextmanager
def started(image: Image, log: Path) -> Iterator[Trial]:
    """The image's entry point with its command, in a network of its own; ended at the latest on leaving."""
    settings = image.settings
    inside = Inside(settings.environment, settings.user, settings.workdir, has_own_network=True)
    words = entering(image.root, (*settings.entrypoint, *settings.command), inside)
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield Trial(image, process, log)
        finally:
            process.kill()
            process.wait()


def events(lines: str) -> list[dict[str, object]]:
    """The data of a stream of server-sent events; TrialError when it is something else."""
    found = [line.removeprefix("data: ") for line in lines.splitlines() if line.startswith("data: ")]
    try:
        read = [json.loads(line) for line in found]
    except ValueError as error:
        raise TrialError(f"not a stream of JSON: {lines}") from error
    if not read or any("error" in event for event in read):
        raise TrialError(f"no answer: {lines}")
    return read


def text_of(stream: Sequence[dict[str, object]]) -> str:
    return "".join(str(event.get("text_output", "")) for event in stream)


def first_line(client: subprocess.Popen[str]) -> str:
    """Blocks until the stream has begun."""
    assert client.stdout is not None
    return client.stdout.readline()
