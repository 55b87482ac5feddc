"""Two ends of a wire that delays and loses IP packets, one of them in a network namespace of its own.

Owns one namespace and two TUN devices, and removes them. Packets pass through this process, so it needs no
queueing discipline of the kernel (`tc netem` is not in every one). Needs root, iproute2 and /dev/net/tun.
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET_BYTES_MAX = 65_536
BENCHMARK_NET = 0xC6120000
"""198.18.0.0/15, set aside for tests of networks (RFC 2544)."""
POLL_MS_MAX = 100


class WireError(Exception):
    """The wire cannot be made here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Weather:
    """One way; packets of one direction keep their order."""

    delay_s: float = 0.0
    loss_p: float = 0.0
    seed: int = 0


def obstacle() -> str:
    """What keeps this process from making a namespace; empty if nothing does."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (Debian package iproute2)"
    if not TUN.exists():
        return f"{TUN} is missing: load the kernel module tun"
    return ""


class Wire:
    """From `here` to `there`, an address in the namespace; use as a context manager."""

    def __init__(self, weather: Weather) -> None:
        number = os.getpid()
        base = BENCHMARK_NET + (number * 4) % (1 << 17)
        self.namespace = f"tr-{number}"
        self.here, self.there = _dotted(base + 1), _dotted(base + 2)
        self.passed = self.lost = 0
        self._weather = weather
        self._names = (f"tra{number}", f"trb{number}")
        self._ends: list[int] = []
        self._rng = random.Random(weather.seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)

    def __enter__(self) -> Wire:
        problem = obstacle()
        if problem:
            raise WireError(problem)
        try:
            self._lay()
        except BaseException:
            self._remove()
            raise
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._remove()

    def command(self, *words: str) -> list[str]:
        """`words`, to be run at the far end."""
        return ["ip", "netns", "exec", self.namespace, *words]

    def _lay(self) -> None:
        near, far = self._names
        self._ends = [_tun(name) for name in self._names]
        _run("ip", "netns", "add", self.namespace)
        _run("ip", "link", "set", far, "netns", self.namespace)
        _run("ip", "addr", "add", f"{self.here}/30", "dev", near)
        _run("ip", "link", "set", near, "up")
        _run(*self.command("ip", "addr", "add", f"{self.there}/30", "dev", far))
        for device in (far, "lo"):
            _run(*self.command("ip", "link", "set", device, "up"))

    def _remove(self) -> None:
        """A device goes with its descriptor, the namespace with its name."""
        for end in self._ends:
            os.close(end)
        self._ends = []
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)

    def _carry(self) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []
        poller = select.poll()
        other = dict(zip(self._ends, reversed(self._ends), strict=True))
        for end in self._ends:
            poller.register(end, select.POLLIN)
        number = 0
        while not self._is_over.is_set():
            due_s = waiting[0][0] - time.monotonic() if waiting else 1.0
            for end, _ in poller.poll(min(max(0.0, due_s * 1000.0), POLL_MS_MAX)):
                packet = os.read(end, PACKET_BYTES_MAX)
                number += 1
                if self._rng.random() < self._weather.loss_p:
                    self.lost += 1
                else:
                    due_at = time.monotonic() + self._weather.delay_s
                    heapq.heappush(waiting, (due_at, number, other[end], packet))
            self._deliver(waiting)

    def _deliver(self, waiting: list[tuple[float, int, int, bytes]]) -> None:
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, packet = heapq.heappop(waiting)
            os.write(end, packet)
            self.passed += 1


def _dotted(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


def _tun(name: str) -> int:
    end = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError as error:
        os.close(end)
        raise WireError(f"cannot make the network device {name}: {error.strerror}") from error
    return end


def _run(*command: str) -> None:
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise WireError(f"{' '.join(command)}: {found.stderr.strip()}")
