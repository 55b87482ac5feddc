"""Keeps the OpenAI server beside Triton: starts it, and starts it again when it has ended by itself.

Decides nothing itself: the growing back-off is that of the models (`Revival`). Must never end Triton, whose
doors do not depend on it. Every step is said on one line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tools.serving.revival import Revival, Sight, Step
from tools.triton_layout import ServerError

NAME = "The OpenAI server"


class Child(Protocol):
    """What is asked of `OpenAIProcess`."""

    url: str
    log: Path

    @property
    def is_alive(self) -> bool: ...

    def start(self, triton: str) -> None: ...

    def stop(self) -> None: ...


class OpenAIKeeper:
    """`triton` is the gRPC address that the server asks."""

    def __init__(self, child: Child, triton: str, say: Callable[[str], None]) -> None:
        self._child = child
        self._triton = triton
        self._say = say
        self._revival = Revival()
        self._is_kept = False

    def open(self) -> str:
        """Where it listens; empty where it cannot run here, and then it is not tried again."""
        try:
            self._child.start(self._triton)
        except ServerError as error:
            self._say(f"{error}\nTriton serves without it.")
            return ""
        self._is_kept = True
        return self._child.url

    def turn(self, now: float) -> None:
        """One look and what follows from it; seconds on any steady clock."""
        if not self._is_kept:
            return
        sight = Sight.UP if self._child.is_alive else Sight.GONE
        for _, step in self._revival.steps({NAME: sight}, now):
            if step is Step.UNLOAD:
                self._say(f"{NAME} ended by itself; Triton goes on. Its last words: {self._child.log}")
                self._child.stop()
            else:
                self._start_again(now)

    def _start_again(self, now: float) -> None:
        try:
            self._child.start(self._triton)
        except ServerError as error:
            self._say(f"{error}; trying again later")
            self._revival.refused(NAME, now)
        else:
            self._say(f"{NAME} is back at {self._child.url}")
            self._revival.loaded(NAME, now)
