"""How a client connects and how long it waits; the same for both clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from python_backend.client.options import Options
from python_backend.client.wire import GRACE_S

DOOR = "token_router"
CUT = "the server ended the stream before the answer was complete"
CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


@dataclass(frozen=True, slots=True)
class Settings:
    """`credentials` are `grpc.ChannelCredentials` for TLS; None connects in the clear."""

    timeout_s: float | None = 600.0
    """For a request that names no limit of its own; None waits as long as the server allows."""
    look_s: float = 20.0
    """For questions about the server."""
    credentials: Any = None

    def timed(self, options: Options) -> Options:
        return options if options.timeout_s is not None else replace(options, timeout_s=self.timeout_s)

    def limit_s(self, options: Options) -> float | None:
        """When the connection itself gives up: the server's own error should come before."""
        return None if options.timeout_s is None else options.timeout_s + GRACE_S


DEFAULT = Settings()
