"""How servers end: how long one that was told to is waited for, and how all of them end at once.

Triton 2.51 can wait for ever for a model whose Python process was killed: where the kill fell into a call of
the metrics API, Triton waits for the dead process to take the answer, the old model is never taken out, and
an exit lasts its whole time-out though nothing is served any more. So a server whose Python processes have
all ended, and that does not follow them, is not waited for.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from typing import Any, Protocol

TURN_S = 0.1
HOLLOW_S = 2.0
"""What a sound server takes at most between the end of its last Python process and its own."""


class Ending(Protocol):
    """What is asked of `subprocess.Popen`."""

    def wait(self, timeout: float | None = None) -> Any:
        """subprocess.TimeoutExpired when it has not ended by then."""
        ...


class Killable(Protocol):
    """What is asked of Triton's server and of the OpenAI server beside it."""

    def kill(self) -> None:
        """At once; harmless when it does not run. Called from a signal handler."""
        ...


def end_now(triton: Killable, openai: Killable | None) -> None:
    """No open answer is waited for. The door first: it shall not tell its clients of a lost Triton."""
    if openai is not None:
        openai.kill()
    triton.kill()


def wait_for_end(process: Ending, stubs: Callable[[], Mapping[str, int]], within_s: float) -> bool:
    """True once it has ended; False after `within_s`, or when it has had no Python process for `HOLLOW_S`."""
    hollow = 0
    for _ in range(round(within_s / TURN_S)):
        try:
            process.wait(TURN_S)
        except subprocess.TimeoutExpired:
            hollow = 0 if _has_any(stubs) else hollow + 1
            if hollow * TURN_S >= HOLLOW_S:
                return False
        else:
            return True
    return False


def _has_any(stubs: Callable[[], Mapping[str, int]]) -> bool:
    try:
        return bool(stubs())
    except OSError:
        return True  # one ended while it was looked at
