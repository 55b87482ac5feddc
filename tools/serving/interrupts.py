"""SIGINT and SIGTERM to a tool that serves, and the exit status that comes of them.

A signal breaks a start off; once it serves, the first asks for an orderly end and the second for one at once.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from router_backend.core.errors import ConfigError
from tools.triton_layout import ServerError


class Interrupts:
    """What was asked for so far; `hurry` is called for an end at once."""

    def __init__(self) -> None:
        self.wanted = threading.Event()
        self.is_starting = True
        self.hurry: Callable[[], None] = lambda: None

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle)

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.wanted.is_set():
            self.hurry()
            return
        self.wanted.set()
        if self.is_starting:
            raise KeyboardInterrupt


Serving = Callable[[argparse.Namespace, Interrupts], int]


def until_ended(tool: str, serving: Serving, options: argparse.Namespace) -> int:
    """The exit status of `serving`; 1 when it cannot serve, 130 when its start was broken off."""
    interrupts = Interrupts()
    interrupts.install()
    try:
        return serving(options, interrupts)
    except (ServerError, ConfigError) as error:
        print(f"{tool}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped before it was ready.", flush=True)
        return 130
