"""Other people's servers, each in an environment of its own, started on a free port and ended by pid."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"
READY_S_MAX = 300.0
ASK_AGAIN_S = 0.5
END_S_MAX = 20.0
THREADS = 1
"""Of each of the two servers on two cores: with two they wait for each other in loops that never sleep."""
VLLM_BLOCK = 32
"""The finest block that its CPU attention takes; the default of 128 would recompute four times as much."""
VLLM_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


class PeerServerError(RuntimeError):
    """It did not start; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A server's command with {port} in it, its environment, and the path that answers 200 when ready."""

    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    ready_path: str = "/health"


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    url: str


@contextlib.contextmanager
def running(*launches: Launch) -> Iterator[list[Running]]:
    """The servers, loaded together, until the block ends; PeerServerError when one is not ready in time."""
    with contextlib.ExitStack() as stack:
        found = []
        for launch in launches:
            port = _free_port()
            process = _started(launch, port)
            stack.callback(_end, process)
            found.append((launch, process, f"http://{LOOPBACK}:{port}"))
        for launch, process, url in found:
            _wait_ready(process, url + launch.ready_path, launch.log)
        yield [Running(process.pid, url) for _, process, url in found]


def _started(launch: Launch, port: int) -> subprocess.Popen[bytes]:
    with launch.log.open("wb") as log:
        return subprocess.Popen(
            [part.replace("{port}", str(port)) for part in launch.command],
            env={**_clean_environment(), **launch.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def vllm_launch(python: Path, model: Path, positions: int, core: int, log: Path) -> Launch:
    """vLLM's OpenAI server as module, because its command asks for a package of another name.

    One thread, on `core`: two servers with two threads each on two cores wait for each other in loops that
    never sleep, and wrote 6 tokens per second where these write 36 (4 requests at once, a busy machine).
    """
    options = {
        "--model": str(model),
        "--host": LOOPBACK,
        "--port": "{port}",
        "--dtype": "float32",
        "--max-model-len": str(positions),
        "--max-num-seqs": "32",
        "--block-size": str(VLLM_BLOCK),
    }
    flags = [part for pair in options.items() for part in pair]
    environment = {**VLLM_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": str(core)}
    module = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    return Launch([*module, *flags, "--enforce-eager", "--enable-prefix-caching"], log, environment)


@dataclass(frozen=True, slots=True)
class Slots:
    """llama.cpp divides its cache among slots, each as long as the longest text."""

    number: int
    tokens: int


def llama_launch(python: Path, model: Path, slots: Slots, log: Path) -> Launch:
    """llama.cpp's server as the wheel `xllamacpp` carries it.

    One thread: two wrote 30 to 95 tokens per second where one wrote 370 to 480 (4 requests at once, a busy
    machine).
    """
    program = Path(__file__).parent / "programs" / "llama_server.py"
    sizes = map(str, (slots.number, slots.tokens, THREADS))
    return Launch([str(python), str(program), str(model), f"{log}.gguf", "{port}", *sizes], log, {})


def _clean_environment() -> dict[str, str]:
    """Without what would make the peer's Python import ours."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "OMP_"))}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up = time.monotonic() + READY_S_MAX
    while time.monotonic() < give_up:
        if process.poll() is not None:
            break
        if _answers(url):
            return
        time.sleep(ASK_AGAIN_S)
    raise PeerServerError(f"{process.args!r} is not ready: ... {log.read_text(errors='replace')[-1500:]}")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and its children: they are one session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(END_S_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
