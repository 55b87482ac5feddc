"""What the chart's layout `separate` renders, run on this machine: the door first, then its models.

Each part is started as its container would be: the init container's command, then the entry point with the
rendered arguments and settings. Only hosts, ports and folders are this machine's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from python_backend.transport.keyring import write_keys
from tests.free_ports import free_addresses
from tests.helm_chart import documents, environment, pod
from tests.server.clients import eventually
from tools.serving.words import said_until
from tools.triton_layout import ROOT
from tools.try_routing import load_questions

pytestmark = pytest.mark.server
VALUES = {
    "layout": "separate",
    "separate": {"keysSecret": "router-keys"},
    "drain": {"leaveServiceSeconds": 0, "openStreamsSeconds": 5},
}
QUESTION = load_questions(ROOT / "model_repository" / "demo_prompts.json", 1)[0]
PATIENCE_S = 60.0
PARTS = {"door": "token_router", "small": "small", "large": "large"}


@dataclass
class Part:
    """One pod's server, ready."""

    process: subprocess.Popen[str]
    said: str

    def at(self, what: str) -> str:
        """Where it listens, as it said."""
        return self.said.split(f"{what} ")[1].split(",")[0].strip()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """As Kubernetes mounts it: the group may read."""
    write_keys(tmp_path / "secret", [*PARTS.values(), "router"])
    for path in (tmp_path / "secret").iterdir():
        path.chmod(0o440)
    return tmp_path / "secret"


def test_the_rendered_parts_find_each_other_and_answer(tmp_path: Path, secret: Path) -> None:
    found = documents(VALUES)
    settings = yaml.safe_load(found["ConfigMap", "demo-token-router"]["data"]["network.yaml"])
    addresses = free_addresses(settings["addresses"])
    settings["addresses"] = addresses
    settings["listen"] = {name: f"0.0.0.0:{one.rpartition(':')[2]}" for name, one in addresses.items()}

    with contextlib.ExitStack() as stack:
        parts = {
            name: stack.enter_context(
                started(found["StatefulSet", f"demo-token-router-{name}"], settings, secret, tmp_path / name)
            )
            for name in PARTS
        }
        assert eventually(lambda: routed(parts["door"]) == (QUESTION.answer, {0, 1}), within_s=PATIENCE_S)
        body = {"model": "token_router", "prompt": QUESTION.prompt, "max_tokens": 64}
        reply = posted(f"{parts['door'].at('OpenAI')}/v1/completions", body)
        assert reply["choices"][0]["text"] == QUESTION.answer


def routed(door: Part) -> tuple[str, set[int]]:
    """The answer to the question and who wrote it; why there is none while the models are not heard."""
    body = {"text_input": QUESTION.prompt, "max_tokens": 64, "return_routing": True}
    try:
        reply = posted(f"{door.at('HTTP')}/v2/models/token_router/generate", body)
    except urllib.error.HTTPError as error:
        return str(error), set()
    return reply["text_output"], set(reply["token_source"])


def posted(url: str, body: dict[str, object]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        found: dict[str, Any] = json.loads(reply.read())
        return found


@contextlib.contextmanager
def started(workload: dict[str, Any], settings: dict[str, Any], secret: Path, folder: Path) -> Iterator[Part]:
    """The pod of `workload`, once it says that it is ready."""
    folder.mkdir()
    spec = pod(workload)
    (container,) = spec["containers"]
    keys = own_keys(spec, secret, folder)
    network = {**settings, "keys": str(keys), "allowed_dirs": [str(keys)]}
    (folder / "network.yaml").write_text(yaml.safe_dump(network))
    ports = {f"{name}_PORT": "0" for name in ("HTTP", "GRPC", "METRICS")}
    variables = {
        **environment(container),
        **ports,
        "SETTINGS": str(folder / "network.yaml"),
        "HOST": "127.0.0.1",
    }
    if "OPENAI_PORT" in variables:
        variables["OPENAI_PORT"] = "0"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with subprocess.Popen(
        [str(ROOT / "docker" / "entrypoint.sh"), *container["args"]],
        env={**os.environ, **variables, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Part(process, said_until("Ready: ", process.stdout).splitlines()[-1])
        finally:
            process.terminate()
            process.communicate(timeout=60)


def own_keys(spec: dict[str, Any], secret: Path, folder: Path) -> Path:
    """What the init container makes of the items of the secret that this pod may see."""
    mounted, keys = folder / "secret", folder / "keys"
    mounted.mkdir()
    keys.mkdir()
    (items,) = (volume["secret"]["items"] for volume in spec["volumes"] if volume["name"] == "secret")
    for item in items:
        shutil.copy2(secret / item["key"], mounted / item["path"])
    *shell, script = spec["initContainers"][0]["command"]
    script = script.replace("/secret/", f"{mounted}/").replace("/keys/", f"{keys}/")
    subprocess.run([*shell, script], check=True, timeout=30)
    return keys
