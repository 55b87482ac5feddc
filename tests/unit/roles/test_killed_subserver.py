"""A subserver in a process of its own, killed with SIGKILL, over real sockets."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from python_backend.roles.subserver import Subserver
from python_backend.transport.unix_transport import UnixTransport
from router_backend.core.effects import Reason
from router_backend.handoff.message import Admit
from tests.unit.roles.pair import SMALL, Home, Pair, ask_stitched, deployment, engine

TIMEOUT_S = 0.5
CHILD = """
import os, sys, threading
from pathlib import Path
from python_backend.config import load_deployment
from python_backend.roles.subserver import build_subserver
folder = Path(sys.argv[1])
subserver = build_subserver(load_deployment(folder / "deployment.yaml"), "large", folder, os.environ)
subserver.start()
threading.Event().wait(60)
"""


def prepare(folder: Path) -> None:
    """`large` writes one token in 2 ms and never hands back."""
    (folder / "large.json").write_text(json.dumps({"vocab_size": 1000, "latency_ms": 2, "uncertain_p": 1}))
    scripted = "engine: scripted, script: large.json, kv_tokens: 4096"
    (folder / "deployment.yaml").write_text(
        f"models: [{{name: small, {scripted}}}, {{name: large, {scripted}}}]\n"
        f"front: {{heartbeat_ms: 20, peer_timeout_s: {TIMEOUT_S}}}\nrun_dir: {folder / 'run'}\n"
    )
    (folder / "run").mkdir(mode=0o700)


def start_large(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, str(folder)])


def test_a_killed_subserver_ends_what_it_held_in_time_and_a_new_one_is_used(tmp_path: Path) -> None:
    prepare(tmp_path)
    child = start_large(tmp_path)
    run = tmp_path / "run"
    small = Subserver(deployment(TIMEOUT_S), "small", engine(SMALL, 0), UnixTransport(run, "small"))
    pair = Pair([small], Home(UnixTransport(run, "front")))
    try:
        home = pair.home
        home.listen_until(lambda: {beat.endpoint for beat in home.beats} == {"small", "large"}, "both")
        request = ask_stitched("r", 1, max_tokens=3000)
        home.tell("small", Admit(request))
        home.listen_until(lambda: any(model for _, model in home.tokens(request.request_id)), "the large one")
        child.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        close = home.wait_for_close(request.request_id)
        took_s = time.monotonic() - killed_at
        child.wait()

        child = start_large(tmp_path)
        home.beats.clear()
        home.listen_until(lambda: {beat.endpoint for beat in home.beats} == {"small", "large"}, "both again")
        home.listen_until(lambda: pair.figure("peers_up") == [1], "the small one to know")
        second = ask_stitched("s", 1, max_tokens=50)
        home.tell("small", Admit(second))
        after = home.wait_for_close(second.request_id)
    finally:
        child.kill()
        child.wait()
        pair.stop()

    assert close.reason is Reason.ERROR
    assert close.message.startswith("TR_PEER_LOST: model 1 stopped")
    assert took_s < 5.0
    assert (after.reason, after.length) == (Reason.LENGTH, 50)
