"""Two real subservers with an event log: every launch and every hand-off is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from python_backend.roles.subserver import Subserver
from python_backend.transport.loopback_transport import LoopbackNetwork
from router_backend.handoff.message import Admit
from tests.unit.roles.pair import LARGE, SMALL, Home, Pair, ask_stitched, deployment, engine

REQUESTS = 6


def events_of(folder: Path, model: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{model}.jsonl").read_text().splitlines()]


def run_logged(folder: Path) -> Pair:
    """Both subservers after they have served some requests and stopped."""
    network = LoopbackNetwork()
    settings = deployment().model_copy(update={"event_log": str(folder)})
    runners = (engine(SMALL, 0), engine(LARGE, 1))
    named = zip(settings.names, runners, strict=True)
    pair = Pair(
        [Subserver(settings, name, runner, network.endpoint(name)) for name, runner in named],
        Home(network.endpoint("front")),
    )
    requests = [ask_stitched(f"r{seed}", seed) for seed in range(REQUESTS)]
    for request in requests:
        pair.home.tell("small", Admit(request))
    for request in requests:
        pair.home.wait_for_close(request.request_id)
    pair.settle()
    pair.stop()
    return pair


def test_what_was_counted_was_also_written(tmp_path: Path) -> None:
    pair = run_logged(tmp_path)
    small, large = events_of(tmp_path, "small"), events_of(tmp_path, "large")

    launches = [[event for event in events if event["what"] == "launch"] for events in (small, large)]
    handoffs = [[event for event in events if event["what"] == "handoff"] for events in (small, large)]
    assert [len(found) for found in launches] == pair.figure("steps")
    assert [len(found) for found in handoffs] == pair.figure("handoffs_sent")
    assert [sum(len(event["requests"]) for event in found) for found in launches] == pair.figure("batch_rows")
    assert {event["request"] for event in handoffs[0]} <= {f"r{seed}" for seed in range(REQUESTS)}
    assert all(event["step_s"] > 0 for found in launches for event in found)


def test_launches_of_a_model_follow_each_other_and_a_hand_off_comes_after_its_step(tmp_path: Path) -> None:
    run_logged(tmp_path)
    for model in ("small", "large"):
        end = 0.0
        for event in events_of(tmp_path, model)[1:]:
            assert event["at"] >= end - 1e-8
            if event["what"] == "launch":
                end = event["at"] + event["step_s"]
