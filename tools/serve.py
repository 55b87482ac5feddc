"""Serves both models on this machine: places the repository, starts Triton, watches it, stops it cleanly.

`make serve` calls this. Ctrl-C (or SIGTERM) lets open streams finish and leaves no process, socket or
shared memory behind; a second Ctrl-C does not wait for the streams.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from python_backend.config import Deployment
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.memory import memory_plans
from python_backend.transport.directory import ENVIRONMENT_KEY
from tools.serving.admin import Admin, AdminError
from tools.serving.announcement import Addresses, announcement, examples
from tools.serving.checks import needs_of, problems, told, weight_problems
from tools.serving.ending import end_now
from tools.serving.exposure import Exposure, exposure
from tools.serving.interrupts import Interrupts, until_ended
from tools.serving.openai_keeper import OpenAIKeeper
from tools.serving.openai_process import OpenAIOptions, OpenAIProcess, must_be_free
from tools.serving.placement import Wishes, place
from tools.serving.supervisor import Administrator, Supervisor
from tools.triton_server import LOOPBACK, Ports, ServerError, ServerOptions, TritonServer

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = ROOT / "model_repository"
RUNS = ROOT / ".run"
LOOK_S = 1.0
HEARD_S_MAX = 30.0
PROMPT = "turn lift fold push spin flip roll bend turn lift fold push 42"
"""For the examples, when the repository holds no demo prompts."""
_LOADED = re.compile(r"successfully loaded '(\w+)'")


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def run_folders() -> Iterator[tuple[Path, Path]]:
    """A folder for the repository and the log, and a short private one for sockets; both go away."""
    folder = RUNS / f"serve-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    sockets = Path(tempfile.mkdtemp(prefix="tr-"))
    try:
        yield folder, sockets
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(folder / "tritonserver.log", RUNS / "serve.log")
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(folder / "openai.log", RUNS / "openai.log")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(sockets, ignore_errors=True)


def checked(deployment: Deployment, repository: Path) -> None:
    """Says how memory is shared. ServerError with every reason why this machine cannot serve, each with its
    cure; ConfigError when the models do not fit together, or not into their memory budget."""
    models = len(list(repository.glob("*/config.pbtxt")))
    found = [*problems(needs_of(models)), *weight_problems(deployment, repository)]
    if found:
        raise ServerError(f"this machine cannot serve yet:\n{told(found)}")
    read_agreement(deployment, repository)
    say("\n".join(line for plan in memory_plans(deployment, repository) for line in plan.lines()))


@contextlib.contextmanager
def progress(log: Path) -> Iterator[None]:
    """Says which model is ready, while the server starts, by following its log."""
    over = threading.Event()
    watcher = threading.Thread(target=_follow, args=(log, over), name="start-progress")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _follow(log: Path, over: threading.Event) -> None:
    begun_at = time.monotonic()
    said = 0
    is_last = False
    while not is_last:
        is_last = over.wait(0.2)
        loaded = _LOADED.findall(log.read_text(errors="replace")) if log.exists() else []
        for name in loaded[said:]:
            say(f"  {name} loaded after {time.monotonic() - begun_at:.1f} s")
        said = len(loaded)


def wait_until_heard(admin: Administrator, models: Sequence[str], interrupts: Interrupts) -> None:
    """Until the doors hear every model, just after Triton is ready; ServerError names the silent ones."""
    turn_s = 0.1
    silent = set(models)
    for _ in range(round(HEARD_S_MAX / turn_s)):
        with contextlib.suppress(AdminError):
            silent = {name for name in models if not admin.peers_up().get(name)}
        if not silent or interrupts.wanted.wait(turn_s):
            return
    raise ServerError(f"loaded, but not heard within {HEARD_S_MAX:g} s: {', '.join(sorted(silent))}")


class Watcher(Protocol):
    """Looks at something once per turn, and sees to it."""

    def turn(self, now: float) -> None: ...


def watch(server: TritonServer, watchers: Sequence[Watcher], interrupts: Interrupts) -> int:
    """Until someone wants the end or Triton ends by itself; the exit status."""
    while not interrupts.wanted.wait(LOOK_S):
        if not server.is_alive:
            raise ServerError(f"tritonserver ended by itself\n{server.log_tail()}")
        for watcher in watchers:
            watcher.turn(time.monotonic())
    say("Stopping; open streams may finish. Ctrl-C again does not wait for them.")
    return 0


def serve(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """Exit status 0 after an orderly end; ServerError or ConfigError when it cannot serve."""
    wishes = Wishes(options.policy, options.cutoff, options.small, options.large)
    with run_folders() as (folder, sockets):
        repository = folder / "repository"
        deployment = place(options.repository, repository, wishes)
        checked(deployment, repository)
        must_be_free(options.host, options.openai_port)
        shown = exposure(options.host)
        server = TritonServer(_server_options(options, shown, folder, sockets))
        openai = OpenAIProcess(_openai_options(options), folder / "openai.log")
        interrupts.hurry = lambda: end_now(server, openai)
        try:
            return _started(server, openai, Loaded(shown, deployment.subservers), interrupts)
        finally:
            openai.stop()
            server.stop()


class Loaded(NamedTuple):
    """What is about to be served."""

    shown: Exposure
    models: Sequence[str]


def _started(server: TritonServer, openai: OpenAIProcess, loaded: Loaded, interrupts: Interrupts) -> int:
    say("Starting tritonserver")
    with progress(server.log_path):
        server.start()
    interrupts.is_starting = False
    admin = Admin(server.http_url, server.metrics_url, headers=dict(loaded.shown.headers))
    wait_until_heard(admin, loaded.models, interrupts)
    keeper = OpenAIKeeper(openai, server.grpc_address, say)
    openai_url = keeper.open()
    at = Addresses(server.http_url, server.grpc_address, server.metrics_url, openai_url)
    say(announcement(at, examples(at, _prompt(), _python()), str(server.log_path)))
    supervisor = Supervisor(server, admin, server.stubs(), say)
    return watch(server, (supervisor, keeper), interrupts)


def _server_options(
    options: argparse.Namespace, shown: Exposure, folder: Path, sockets: Path
) -> ServerOptions:
    models = sorted(path.parent.name for path in (folder / "repository").glob("*/config.pbtxt"))
    return ServerOptions(
        repository=folder / "repository",
        run_dir=folder,
        ports=Ports(options.http_port, options.grpc_port, options.metrics_port),
        host=options.host,
        load_models=tuple(models),
        awaited_fronts=(),  # `wait_until_heard` waits for them, and names who is silent
        exit_timeout_s=options.drain_s,
        ready_s_max=options.ready_s,
        arguments=shown.arguments,
        environment={ENVIRONMENT_KEY: str(sockets)},
    )


def _openai_options(options: argparse.Namespace) -> OpenAIOptions:
    return OpenAIOptions(options.openai_port, options.host, options.drain_s, options.api_keys)


def _prompt() -> str:
    path = REPOSITORY / "demo_prompts.json"
    return str(json.loads(path.read_text())[0]["prompt"]) if path.exists() else PROMPT


def _python() -> str:
    """This interpreter as a person would type it."""
    here = Path(sys.executable)
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an orderly stop, 1 when it cannot serve."""
    return until_ended("serve", serve, _parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.serve", description=__doc__)
    parser.add_argument(
        "--http-port", type=int, default=8000, help="0 takes a free one (default: %(default)s)"
    )
    parser.add_argument("--grpc-port", type=int, default=8001, help="(default: %(default)s)")
    parser.add_argument("--metrics-port", type=int, default=8002, help="(default: %(default)s)")
    parser.add_argument(
        "--openai-port", type=int, default=8003, help="OpenAI's API and a playground (default: %(default)s)"
    )
    parser.add_argument(
        "--policy", help="routing policy of requests that name none (default: the deployment's)"
    )
    parser.add_argument("--cutoff", type=float, help="that policy's cutoff")
    parser.add_argument("--small", type=Path, help="Hugging Face directory of the small model")
    parser.add_argument("--large", type=Path, help="Hugging Face directory of the large model")
    parser.add_argument("--repository", type=Path, default=REPOSITORY, help="model repository to start from")
    add_common_options(parser)
    return parser


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """What a whole deployment and a part of one are both asked."""
    add = parser.add_argument
    add("--host", default=LOOPBACK, help="address to listen on; 0.0.0.0 in a container (%(default)s)")
    add("--api-keys", type=Path, help="file of keys for OpenAI's API; default: none is needed")
    add("--drain-s", type=int, default=30, help="longest wait for open streams (default: %(default)s)")
    add("--ready-s", type=float, default=900.0, help="longest wait for the models (default: %(default)s)")


if __name__ == "__main__":
    sys.exit(main())
