"""Loopback addresses that nobody uses now."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable


def free_addresses(names: Iterable[str]) -> dict[str, str]:
    """host:port for each of `names`, all different."""
    with contextlib.ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.socket()) for name in names}
        for listener in sockets.values():
            listener.bind(("127.0.0.1", 0))
        return {name: f"127.0.0.1:{listener.getsockname()[1]}" for name, listener in sockets.items()}
