"""Frames between endpoints of one process: the transport of tests and of single-process runs.

Owns one mailbox per endpoint. Must never lose or reorder frames between two endpoints, except where
a test cuts a peer off. Behaves as the others: neither side has to start first.
"""

from __future__ import annotations

import threading
from collections import deque

from python_backend.transport.base import Frames, Peer


class _Mailbox:
    def __init__(self) -> None:
        self.letters: deque[tuple[Peer, Frames]] = deque()
        self.changed = threading.Condition()
        self.is_woken = False


class LoopbackNetwork:
    """The mailboxes that its endpoints share."""

    def __init__(self, queue_max: int = 100_000) -> None:
        self._queue_max = queue_max
        self._mailboxes: dict[Peer, _Mailbox] = {}
        self._cut: set[Peer] = set()
        self._lock = threading.Lock()

    def endpoint(self, name: str) -> LoopbackTransport:
        return LoopbackTransport(self, Peer(name))

    def cut(self, name: str) -> None:
        """From now on nothing reaches or leaves `name`: the network's view of a dead process."""
        self._cut.add(Peer(name))

    def mend(self, name: str) -> None:
        self._cut.discard(Peer(name))

    def mailbox(self, name: Peer) -> _Mailbox:
        with self._lock:
            return self._mailboxes.setdefault(name, _Mailbox())

    def deliver(self, sender: Peer, receiver: Peer, frames: Frames) -> bool:
        if sender in self._cut or receiver in self._cut:
            return True
        mailbox = self.mailbox(receiver)
        with mailbox.changed:
            if len(mailbox.letters) >= self._queue_max:
                return False
            mailbox.letters.append((sender, list(frames)))
            mailbox.changed.notify()
        return True


    def withdraw(self, sender: Peer, receiver: Peer) -> None:
        """Take back what `receiver` has not read yet."""
        mailbox = self.mailbox(receiver)
        with mailbox.changed:
            others = [letter for letter in mailbox.letters if letter[0] != sender]
            mailbox.letters.clear()
            mailbox.letters.extend(others)


class LoopbackTransport:
    """One endpoint of a `LoopbackNetwork`."""

    def __init__(self, network: LoopbackNetwork, name: Peer) -> None:
        self._network = network
        self._name = name
        self._mailbox = network.mailbox(name)

    def post(self, peer: Peer, frames: Frames) -> bool:
        return self._network.deliver(self._name, peer, frames)

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        mailbox = self._mailbox
        with mailbox.changed:
            mailbox.changed.wait_for(lambda: mailbox.is_woken or bool(mailbox.letters), max(0.0, timeout_s))
            mailbox.is_woken = False
            arrived = list(mailbox.letters)
            mailbox.letters.clear()
        return arrived

    def wake(self) -> None:
        with self._mailbox.changed:
            self._mailbox.is_woken = True
            self._mailbox.changed.notify()

    def forget(self, peer: Peer) -> None:
        self._network.withdraw(self._name, peer)

    @property
    def refused(self) -> int:
        """Nobody can be a stranger inside one process."""
        return 0

    def close(self) -> None:
        self.wake()
