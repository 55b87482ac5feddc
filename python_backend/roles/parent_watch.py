"""Ends this process when the server that started it is gone.

Triton's Python processes outlive a killed server; PR_SET_PDEATHSIG cannot be used because the thread
that forks them ends at once (triton.md, section 3).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)

PERIOD_S = 0.5


class ParentWatch:
    """Looks at the parent's pid from a thread of its own; `parent` and `leave` are replaced in tests."""

    def __init__(
        self,
        parent: Callable[[], int] = os.getppid,
        leave: Callable[[int], object] = os._exit,
        period_s: float = PERIOD_S,
    ) -> None:
        self._parent = parent
        self._leave = leave
        self._period_s = period_s
        self._first = parent()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="parent-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._period_s):
            if self._parent() != self._first:
                _log.critical("the server (pid %d) is gone: this process ends", self._first)
                self._leave(1)
                return
