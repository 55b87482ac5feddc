"""The doors and the small model on this host, the large model at the far end of a wire.

Owns both servers, from entering to leaving. Two Triton servers that share nothing but the network.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from python_backend.config import load_deployment
from python_backend.transport.keyring import write_keys
from tools.hosts.wire import Wire
from tools.make_repository import repository_files
from tools.repository.part import write_part
from tools.serving.words import said_until
from tools.triton_layout import ROOT
from tools.triton_server import ServerOptions, TritonServer

NEAR, FAR = ("token_router", "small"), ("large",)
STOP_S_MAX = 60.0
SCRIPT = {"vocab_size": 128, "length_max": 4096, "latency_ms": 2.0, "uncertain_p": 0.3}


def write_deployment(folder: Path, addresses: dict[str, str], **settings: object) -> Path:
    """The demo pair's tokenizer over scripted models of 2 ms per step, over TCP with keys; its YAML file."""
    models = [{"name": name, "engine": "scripted", "script": "script.json"} for name in ("small", "large")]
    transport = {"transport": "tcp", "addresses": addresses, "keys": "keys"} if addresses else {}
    policy = {"name": "r_stitch", "params": {"cutoff": 0.2}}
    front = {"tokenizer_dir": "tokenizer"}
    folder.mkdir(parents=True)
    allowed = {"allowed_dirs": [str(ROOT / "model_repository")]}
    whole = {"models": models, "policy": policy, "front": front, **allowed, **transport, **settings}
    (folder / "deployment.yaml").write_text(yaml.safe_dump(whole))
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    (folder / "tokenizer").symlink_to(ROOT / "model_repository" / "small" / "1")
    write_keys(folder / "keys", (*NEAR, *FAR))
    return folder / "deployment.yaml"


def near_server(deployment: Path, folder: Path, names: tuple[str, ...]) -> TritonServer:
    """This host's server of the part `names`, not started."""
    write_part(deployment, folder / "repository", names, repository_files(load_deployment(deployment)))
    (folder / "repository" / "tokenizer").symlink_to(ROOT / "model_repository" / "small" / "1")
    return TritonServer(ServerOptions(folder / "repository", folder / "run", load_models=names))


@contextlib.contextmanager
def far_server(wire: Wire, deployment: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The far host's server, ready; ServerError with its words when it does not become so."""
    write_part(deployment, folder / "repository", FAR, repository_files(load_deployment(deployment)))
    (folder / "repository" / "tokenizer").symlink_to(ROOT / "model_repository" / "small" / "1")
    command = wire.command(sys.executable, "-m", "tools.serve_part", str(folder / "repository"))
    process = subprocess.Popen(
        [*command, "--drain-s", "5"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        said_until("Ready: ", process.stdout)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=STOP_S_MAX)


@contextlib.contextmanager
def two_hosts(wire: Wire, folder: Path, **settings: object) -> Iterator[TritonServer]:
    """The near server; both answer."""
    deployment = write_deployment(folder / "whole", addresses(wire.here, wire.there), **settings)
    with far_server(wire, deployment, folder / "far"), near_server(deployment, folder / "near", NEAR) as near:
        yield near


def addresses(here: str, there: str) -> dict[str, str]:
    """host:port of every endpoint; ports that are free here now, and in a new namespace all are."""
    with contextlib.ExitStack() as stack:
        found = {}
        for name in (*NEAR, *FAR):
            listener = stack.enter_context(socket.socket())
            listener.bind((here, 0))
            found[name] = f"{there if name in FAR else here}:{listener.getsockname()[1]}"
        return found
