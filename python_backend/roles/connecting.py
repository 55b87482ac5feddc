"""How an endpoint of this deployment is connected: by socket files, or by addresses and keys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from python_backend.config import Deployment
from python_backend.transport.base import HandoffTransport
from python_backend.transport.directory import open_run_dir, run_dir
from python_backend.transport.keyring import read_keyring
from python_backend.transport.unix_transport import UnixTransport
from python_backend.transport.wiring import TcpWiring
from python_backend.transport.zmq_transport import ZmqTransport


def open_transport(
    deployment: Deployment, repository: Path, endpoint: str, environment: Mapping[str, str] = os.environ
) -> HandoffTransport:
    """The transport of `endpoint`, listening; ConfigError says which address, key or folder is at fault."""
    if deployment.transport == "tcp":
        ring = read_keyring(repository / deployment.keys, endpoint) if deployment.keys else None
        return ZmqTransport(TcpWiring(deployment.addresses, ring, deployment.listen), endpoint)
    folder = open_run_dir(run_dir(deployment.run_dir, environment, os.getppid()))
    return UnixTransport(folder, endpoint)
