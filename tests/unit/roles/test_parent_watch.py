"""The process ends with the server that started it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

from python_backend.roles.parent_watch import ParentWatch
from tests.processes import is_running

BOUND_S = 20.0

CHILD = """
import sys, threading
from python_backend.roles.parent_watch import ParentWatch
from tests.processes import is_running
watch = ParentWatch(period_s=0.01)
watch.start()
print("watching", flush=True)
threading.Event().wait(60)
"""

PARENT = f"""
import subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
threading.Event().wait(60)
"""


def test_another_parent_ends_the_process() -> None:
    parents, left, ended = [7], [], threading.Event()

    def leave(status: int) -> None:
        left.append(status)
        ended.set()

    watch = ParentWatch(parent=lambda: parents[-1], leave=leave, period_s=0.001)
    watch.start()
    parents.append(1)

    assert ended.wait(BOUND_S)
    watch.stop()
    assert left == [1]


def test_the_same_parent_changes_nothing() -> None:
    looks, left = threading.Semaphore(0), []

    def parent() -> int:
        looks.release()
        return 7

    watch = ParentWatch(parent=parent, leave=left.append, period_s=0.001)
    watch.start()
    assert all(looks.acquire(timeout=BOUND_S) for _ in range(5))
    watch.stop()

    assert left == []


def test_a_killed_parent_leaves_no_orphan() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)

    give_up, pause = time.monotonic() + BOUND_S, threading.Event()
    while is_running(child) and time.monotonic() < give_up:
        pause.wait(0.01)
    assert not is_running(child)
