"""Two live subservers with thresholds that follow the traffic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from python_backend.config import Deployment, parse_deployment
from python_backend.roles.adapting import read_latencies
from python_backend.roles.subserver import Subserver
from python_backend.transport.loopback_transport import LoopbackNetwork
from router_backend.core.errors import ConfigError
from router_backend.handoff.message import Abort, Admit
from router_backend.planner.latency import constant, sloped
from tests.unit.roles.pair import LARGE, SMALL, Home, Pair, ask_stitched, engine

LIVE = 8
QUICK = replace(SMALL, latency_ms=(3.0,), uncertain_p=0.5)
SLOW = replace(LARGE, latency_ms=(14.0,), uncertain_p=0.0)
"""The large model always hands back: waiting for a fuller batch pays 18 %."""


def deployment(extra: str = "") -> Deployment:
    return parse_deployment(
        "models: [{name: small, kv_tokens: 65536}, {name: large, kv_tokens: 65536}]\n"
        "thresholds: auto\n"
        "deadline_ms: 40\n"
        f"front: {{heartbeat_ms: 20, peer_timeout_s: 1.0}}\n{extra}",
        "tests",
    )


@pytest.fixture
def network() -> LoopbackNetwork:
    return LoopbackNetwork()


@pytest.fixture
def pair(network: LoopbackNetwork) -> Iterator[Pair]:
    runners = (("small", engine(QUICK, 0)), ("large", engine(SLOW, 1)))
    subservers = [Subserver(deployment(), name, one, network.endpoint(name)) for name, one in runners]
    made = Pair(subservers, Home(network.endpoint("front")))
    yield made
    made.stop()


def load(pair: Pair) -> list[Admit]:
    """Long requests, and both models with thresholds that wait for more than one of them."""
    admits = [Admit(ask_stitched(f"r{seed}", seed, max_tokens=2000)) for seed in range(LIVE)]
    for admit in admits:
        pair.home.tell("small", admit)
    pair.home.listen_until(lambda: pair.figure("threshold")[1] > 1, "the large model's threshold to rise")
    return admits


def test_thresholds_rise_where_waiting_pays_and_are_one_again_when_traffic_drains(pair: Pair) -> None:
    admits = load(pair)
    risen = pair.figure("threshold"), pair.small.snapshot()["threshold_cause"]
    pair.home.listen_until(lambda: pair.figure("predicted_throughput")[0] > 0, "a prediction")
    for admit in admits:
        for endpoint in ("small", "large"):
            pair.home.tell(endpoint, Abort(admit.request.request_id, 0))
    pair.settle()
    pair.home.listen_until(lambda: pair.small.snapshot()["threshold_cause"]["alone"], "the end to show")  # type: ignore[index]

    assert risen[0][0] == 1
    assert risen[1] == {"plan": 1.0, "alone": 0.0, "draining": 0.0, "cold": 0.0, "watchdog": 0.0}
    assert pair.figure("threshold") == [1, 1]
    assert min(pair.figure("threshold_changes")) > 0
    assert pair.figure("loop_errors") == pair.figure("messages_malformed") == [0, 0]


def test_a_leader_that_is_lost_leaves_ones_behind(pair: Pair, network: LoopbackNetwork) -> None:
    load(pair)
    network.cut("small")
    pair.home.listen_until(lambda: pair.figure("threshold")[1] == 1, "the large model to be eager")


def test_latencies_come_from_the_profile_that_the_deployment_names(tmp_path: Path) -> None:
    small = {"steps": [{"batch": 1, "step_ms": 6.0}]}
    large = {"steps": [{"batch": 1, "step_ms": 27.9}, {"batch": 2, "step_ms": 28.3}]}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"models": [small, large]}))
    named = deployment(f"profile: {path}")

    measured = read_latencies(named)
    assert measured is not None
    assert [one.step_ms(5) for one in measured] == pytest.approx([6.0, sloped(27.9, 0.4).step_ms(5)])
    assert (measured[0], read_latencies(deployment())) == (constant(6.0), None)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ('{"models": [{"steps": []}]}', "models"),
        ('{"models": [{"steps": [{"batch": 1, "step_ms": 6.0}]}]}', "1 models, the deployment has"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused_with_its_name(
    tmp_path: Path, text: str | None, what: str
) -> None:
    path = tmp_path / "profile.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError, match=f"profile: .*profile.json.*{what}"):
        read_latencies(deployment(f"profile: {path}"))


def test_adaptive_thresholds_need_delayed_batching() -> None:
    with pytest.raises(ConfigError, match="thresholds: auto needs mode delayed, not step_sync"):
        deployment("mode: step_sync")
