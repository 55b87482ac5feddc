"""A thread's CPU time is divided as its samples are, by the innermost frame that is known."""

from __future__ import annotations

import pytest

from tools.peers.stacks import REST, seconds

LOOP = "thread (7): small DecodeLoop;DecodeLoop.turn (python_backend/loops/decode_loop.py:146)"
RUNNER = f"{LOOP};TorchRunner.execute (python_backend/runner/torch_runner/runner.py:75)"
PLAN = f"{LOOP};Scheduler.plan (router_backend/scheduler/scheduler.py:80)"


def test_a_sample_counts_for_its_innermost_known_frame() -> None:
    lines = [
        f"{RUNNER};linear (torch/nn/functional.py:5) 4\n",
        f"{RUNNER};attend (python_backend/runner/torch_runner/attention.py:23) 2\n",
        f"{PLAN};match (router_backend/kvcache/prefix_cache.py:1) 1\n",
        f"{LOOP} 1\n",
        "\n",
    ]

    found = seconds(lines, {7: 8.0})
    assert {part: spent for part, spent in found.items() if spent} == pytest.approx(
        {"forward": 6.0, "prefix look-up, blocks": 1.0, "loops, waking up": 1.0}
    )


def test_a_thread_that_slept_while_it_was_looked_at_costs_what_it_used() -> None:
    sleeper = "thread (8): writer;wait (python_backend/server/metrics.py:9) 1000"
    found = seconds([f"{LOOP} 10", sleeper], {7: 3.0, 8: 0.5, 9: 0.25})

    assert found["loops, waking up"] == pytest.approx(3.0)
    assert found["figures, metrics"] == pytest.approx(0.5)
    assert found[REST] == pytest.approx(0.25)
