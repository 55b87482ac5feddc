"""A peer whose name is not known yet: the start goes on, and it is found once the name is there.

The name is made in a hosts file of the test's own, which a mount namespace puts over the system's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

NAMESPACE = ["unshare", "--map-root-user", "--mount"]
CAN_MOUNT = (
    shutil.which("unshare") is not None
    and subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
)
PROGRAM = """
import sys
from pathlib import Path
from python_backend.transport.base import Peer
from python_backend.transport.keyring import read_keyring, write_keys
from python_backend.transport.wiring import TcpWiring
from python_backend.transport.zmq_transport import ZmqTransport
from tests.free_ports import free_addresses

keys, hosts = Path(sys.argv[1]), Path("/etc/hosts")
write_keys(keys, ("small", "large"))
listening = free_addresses(("small", "large"))
port = listening["large"].rpartition(":")[2]
addresses = {**listening, "large": f"large.invalid:{port}"}
wirings = {name: TcpWiring(addresses, read_keyring(keys, name), listening) for name in ("small", "large")}
small, large = (ZmqTransport(wiring, name) for name, wiring in wirings.items())
assert small.post(Peer("large"), [b"early"])
assert large.poll(0.5) == []
hosts.write_text(hosts.read_text() + "127.0.0.1 large.invalid\\n")
print(next(found for found in (large.poll(0.1) for _ in range(200)) if found))
small.close()
large.close()
"""


@pytest.mark.skipif(not CAN_MOUNT, reason="no mount namespace can be made here")
def test_what_was_posted_to_a_name_nobody_knew_arrives_once_the_name_is_known(tmp_path: Path) -> None:
    shutil.copyfile("/etc/hosts", tmp_path / "hosts")
    inside = f'mount --bind "{tmp_path}/hosts" /etc/hosts && exec "$@"'
    command = [*NAMESPACE, "sh", "-c", inside, "sh", sys.executable, "-c", PROGRAM, str(tmp_path / "keys")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("[('small', [b'early'])]\n", "")
