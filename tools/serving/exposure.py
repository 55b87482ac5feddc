"""What a server that other hosts can reach keeps to itself.

Owns the list of Triton's endpoints that change the server, and the key that opens them. Invariant: bound to
anything but the loopback interface, those endpoints answer nobody who does not know this run's key.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tools.triton_layout import LOOPBACK

PRIVATE = "model-repository,shared-memory,trace,logging"
"""Endpoints that load and unload models, map memory, or write files on the server."""
HEADER = "x-admin-key"


@dataclass(frozen=True, slots=True)
class Exposure:
    """Arguments for tritonserver, and the headers of whoever administers it."""

    arguments: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


def exposure(host: str) -> Exposure:
    """Nothing to add on the loopback interface; a fresh key anywhere else."""
    if host == LOOPBACK:
        return Exposure()
    rule = f"{PRIVATE}:{HEADER}={(key := secrets.token_hex(16))}"
    arguments = (f"--http-restricted-api={rule}", f"--grpc-restricted-protocol={rule}")
    return Exposure(arguments, ((HEADER, key),))
