"""Where a second host cannot be made it is said why; where it can, nothing of it stays."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tools.hosts import wire as wires
from tools.hosts.wire import Weather, Wire, WireError, obstacle

ANSWER = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    caller, _ = listener.accept()
    caller.sendall(caller.recv(100))
"""


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wires.os, "geteuid", lambda: 1000)
    assert obstacle() == "network namespaces need root"
    monkeypatch.setattr(wires.os, "geteuid", lambda: 0)
    monkeypatch.setattr(wires.shutil, "which", lambda name: None)
    assert "iproute2" in obstacle()
    with pytest.raises(WireError, match="iproute2"):
        Wire(Weather()).__enter__()
    monkeypatch.setattr(wires.shutil, "which", lambda name: "/sbin/ip")
    monkeypatch.setattr(wires, "TUN", Path("/dev/away"))
    assert obstacle() == "/dev/away is missing: load the kernel module tun"


@pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a wire can be laid")
def test_bytes_cross_the_wire_although_packets_are_lost_and_the_namespace_goes_with_it() -> None:
    with Wire(Weather(delay_s=0.002, loss_p=0.1, seed=3)) as wire:
        command = wire.command("python3", "-c", ANSWER, wire.there)
        far = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert far.stdout is not None
        port = int(far.stdout.readline())
        with socket.create_connection((wire.there, port), timeout=60) as near:
            near.sendall(b"there and back")
            assert near.recv(100) == b"there and back"
        far.communicate(timeout=60)
        assert wire.passed > 5
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert wire.namespace not in names
