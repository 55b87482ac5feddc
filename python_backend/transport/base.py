"""How frames reach another process. The loops see only this."""

from __future__ import annotations

from collections.abc import Sequence as Sequences
from typing import NewType, Protocol

Peer = NewType("Peer", str)
"""Name of an endpoint: a subserver's model name, or the name of a front's Triton model."""

Frames = Sequences[bytes]


class HandoffTransport(Protocol):
    """Unordered between peers, ordered and lossless towards one live peer.

    One thread owns a transport; only `post` and `wake` may be called from others.
    """

    def post(self, peer: Peer, frames: Frames) -> bool:
        """Queue frames for `peer` without blocking; False when its queue is full or it is unknown.

        Safe from any thread; frames of one thread stay in order. What the peer cannot take at once leaves
        while the owner polls.
        """
        ...

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        """Frames that arrived, with the sender's name; waits at most `timeout_s` (or until `wake`)."""
        ...

    def wake(self) -> None:
        """Make a `poll` that is waiting return at once. Safe from any thread."""
        ...

    def forget(self, peer: Peer) -> None:
        """Drop what is queued for `peer`, which is gone: its successor must not read it.

        Safe from any thread.
        """
        ...

    @property
    def refused(self) -> int:
        """Connections and messages turned away so far because their sender could not show who it is."""
        ...

    def close(self) -> None: ...
