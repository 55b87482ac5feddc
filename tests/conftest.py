"""What every test shares: hypothesis settings, one worker for servers, and nothing left behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

LEFT_BEHIND_S_MAX = 5.0


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start a server run one after the other: two servers would fight for two cores."""
    for item in items:
        if item.get_closest_marker("server"):
            item.add_marker(pytest.mark.xdist_group("server"))


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
