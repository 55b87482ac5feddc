"""The loops that keep cores awake run as the least important processes, and end with the block."""

from __future__ import annotations

import os

from tests.server.clients import eventually
from tools.awake import cores_awake
from tools.peers.processes import family


def spinners() -> list[int]:
    me = os.getpid()
    return [pid for pid in family([me]) if pid != me]


def test_one_idle_class_loop_per_core_runs_until_the_block_ends() -> None:
    before = set(spinners())
    with cores_awake():
        started = set(spinners()) - before
        assert len(started) == len(os.sched_getaffinity(0))
        assert eventually(lambda: {os.sched_getscheduler(pid) for pid in started} == {os.SCHED_IDLE})

    assert set(spinners()) == before


def test_nothing_runs_when_it_is_not_wanted() -> None:
    before = spinners()
    with cores_awake(False):
        assert spinners() == before
