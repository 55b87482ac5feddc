"""The four modes are one code path: whatever the order of steps, the tokens are the same."""

from __future__ import annotations

from typing import Any

import pytest

from python_backend.config import Deployment
from python_backend.roles.subserver import Subserver
from python_backend.transport.loopback_transport import LoopbackNetwork
from router_backend.core.effects import Reason
from router_backend.handoff.message import Admit
from router_backend.scheduler.rounds import Mode
from tests.unit.roles.pair import LARGE, SMALL, Home, Pair, ask_stitched, deployment, engine, expected_answer

REQUESTS = [ask_stitched(f"r{seed}", seed) for seed in range(8)]


def in_mode(mode: Mode) -> Deployment:
    """Two models of which the large one waits for three requests, where the mode lets it."""
    small, large = deployment().models
    models = (small, large.model_copy(update={"threshold": 3}))
    return deployment().model_copy(update={"mode": mode, "models": models, "deadline_ms": 50.0})


def serve_all(mode: Mode) -> tuple[list[Any], list[dict[str, float]]]:
    """The answers of all requests, and both models' launches by reason."""
    network, settings = LoopbackNetwork(), in_mode(mode)
    runners = zip(settings.names, (engine(SMALL, 0), engine(LARGE, 1)), strict=True)
    subservers = [Subserver(settings, name, runner, network.endpoint(name)) for name, runner in runners]
    pair = Pair(subservers, Home(network.endpoint("front")))
    try:
        for request in REQUESTS:
            pair.home.tell("small", Admit(request))
        closes = [pair.home.wait_for_close(request.request_id) for request in REQUESTS]
        assert {close.reason for close in closes} == {Reason.LENGTH}
        pair.settle()
        return [pair.home.tokens(request.request_id) for request in REQUESTS], pair.figure("launches")  # type: ignore[return-value]
    finally:
        pair.stop()


@pytest.mark.parametrize("mode", list(Mode))
def test_every_mode_gives_the_tokens_of_the_plain_algorithm(mode: Mode) -> None:
    answers, launches = serve_all(mode)

    small, large = engine(SMALL, 0), engine(LARGE, 1)
    assert answers == [expected_answer(request, small, large) for request in REQUESTS]
    reasons = {reason for counts in launches for reason, count in counts.items() if count}
    assert ("barrier" in reasons) == mode.is_barrier
    assert len(reasons) == 1 or not mode.is_barrier
