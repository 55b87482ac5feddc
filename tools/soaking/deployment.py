"""The server under test: the demo pair behind both doors, and the supervisor of `make serve`.

Everything lies in a folder that goes away; the server's log is kept as `.run/soak.log`.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from python_backend.config import Deployment
from tools.serving.admin import Admin
from tools.serving.placement import DEPLOYMENT, Wishes, place
from tools.serving.supervisor import Supervisor
from tools.triton_layout import ROOT
from tools.triton_server import ServerOptions, TritonServer

REPOSITORY = ROOT / "model_repository"
LOG = ROOT / ".run" / "soak.log"
REQUEST_S_MAX = 60.0
"""A request whose last words died with their writer ends at this deadline (docs/hosts.md, limits)."""
RETRY_S = 45.0
LOOK_S = 1.0
EXIT_S = 15


@dataclass(frozen=True, slots=True)
class Served:
    """`said`: what the supervisor did, each line with its time."""

    server: TritonServer
    deployment: Deployment
    said: list[tuple[float, str]] = field(default_factory=list)

    def blocks(self) -> dict[str, int]:
        """KV blocks of each model, as the deployment asks for them."""
        return {one.name: (one.kv_tokens or 0) // one.block_size for one in self.deployment.models}


@contextlib.contextmanager
def served(on_peer_loss: str) -> Iterator[Served]:
    """Ready, and watched until the block ends; ServerError or ConfigError when it cannot be served."""
    with tempfile.TemporaryDirectory(prefix="tr-soak-") as name:
        deployment = _placed(Path(name), on_peer_loss)
        models = tuple(sorted(path.parent.name for path in Path(name).glob("repository/*/config.pbtxt")))
        options = ServerOptions(
            Path(name) / "repository", Path(name) / "run", load_models=models, exit_timeout_s=EXIT_S
        )
        server = TritonServer(options)
        try:
            with server:
                found = Served(server, deployment)
                with _watched(found):
                    yield found
        finally:
            _keep(server.log_path)


def _placed(folder: Path, on_peer_loss: str) -> Deployment:
    source = folder / "source"
    shutil.copytree(REPOSITORY, source)
    settings = yaml.safe_load((source / DEPLOYMENT).read_text())
    settings["front"] = {**settings.get("front", {}), "request_timeout_s": REQUEST_S_MAX}
    settings |= {"on_peer_loss": on_peer_loss, "retry_s": RETRY_S}
    (source / DEPLOYMENT).write_text(yaml.safe_dump(settings, sort_keys=False))
    return place(source, folder / "repository", Wishes())


@contextlib.contextmanager
def _watched(found: Served) -> Iterator[None]:
    server, over = found.server, threading.Event()
    supervisor = Supervisor(
        server,
        Admin(server.http_url, server.metrics_url),
        server.stubs(),
        lambda line: found.said.append((time.monotonic(), line)),
    )
    thread = threading.Thread(target=_watch, args=(supervisor, over), name="soak-supervisor")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(supervisor: Supervisor, over: threading.Event) -> None:
    while not over.wait(LOOK_S):
        supervisor.turn(time.monotonic())


def _keep(log: Path) -> None:
    LOG.parent.mkdir(exist_ok=True)
    with contextlib.suppress(FileNotFoundError):  # the server was never started
        shutil.copyfile(log, LOG)
