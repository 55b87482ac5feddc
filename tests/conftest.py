"""What every test shares: hypothesis settings, one thread for torch, one worker for servers, nothing left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# Before torch is imported, and for every process that a test starts. The models' products are tiny here, and
# two workers have two cores: a second thread spins on the core that its neighbour needs.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

LEFT_BEHIND_S_MAX = 5.0
SERVER_TESTS = "tests/server/"


class ServersTogether(LoadScopeScheduling):
    """Tests of a real server run one after the other on one worker: two servers would fight for two cores.

    By path, because pytest-xdist 3.8 cannot read its own group marks from pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SERVER_TESTS if nodeid.startswith(SERVER_TESTS) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ServersTogether:
    return ServersTogether(config, log)


@pytest.fixture(autouse=True, scope="module")
def _no_thread_is_left_behind() -> Iterator[None]:
    """A module's tests end the non-daemon threads that they start."""
    before = set(threading.enumerate())
    yield
    until = time.monotonic() + LEFT_BEHIND_S_MAX
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon:
            thread.join(max(0.0, until - time.monotonic()))
            assert not thread.is_alive(), f"{thread.name} is still running after its tests"
