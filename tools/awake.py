"""Keeps the cores of a virtual machine from falling asleep while something is measured.

An idle virtual core is taken away by its host and comes back a tenth of a millisecond after it is needed, so
a server that mostly waits looks slower on an idle machine than on a busy one. One endless loop per core with
the scheduling class SCHED_IDLE takes only time that nobody else wants. On bare metal one would set idle=poll.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

_SPIN = """
import os
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(100_000):
        pass
"""
HELP = "hold a virtual machine's cores awake with loops of class SCHED_IDLE while measuring"


@contextlib.contextmanager
def cores_awake(is_wanted: bool = True) -> Iterator[None]:
    """Until the block ends; the loops also end with this process."""
    count = len(os.sched_getaffinity(0)) if is_wanted else 0
    spinners = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
