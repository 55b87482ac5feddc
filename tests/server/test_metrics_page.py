"""What an operator reads on /metrics after some traffic."""

from __future__ import annotations

import pytest

from tests.server.clients import eventually, generate, metric, settled
from tests.server.test_doors import DEMO, DOORS
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

MODELS = ("small", "large")
FRONTS = ("token_router", "router")


def total(server: TritonServer, name: str, **labels: str) -> float:
    return metric(server, f"token_router_{name}_total", **labels)


@pytest.fixture(scope="module", autouse=True)
def _some_traffic(server: TritonServer) -> None:
    before = {door: total(server, "requests", door=door) for door in FRONTS}
    for demo in DEMO[:10]:
        for door in DOORS:
            assert generate(server, door, text_input=demo["prompt"], max_tokens=20).status == 200
    for door in FRONTS:
        assert eventually(lambda door=door: total(server, "requests", door=door) >= before[door] + 10)


def fates(server: TritonServer) -> list[tuple[float, ...]]:
    """(sampled, committed, discarded) by model."""
    names = ("tokens_sampled", "tokens_committed", "tokens_discarded")
    return [tuple(total(server, name, model=model) for name in names) for model in MODELS]


def test_sampled_tokens_are_committed_or_discarded(server: TritonServer) -> None:
    for sampled, committed, discarded in settled(lambda: fates(server)):
        assert sampled > 0
        assert committed + discarded == sampled
    assert all(metric(server, "token_router_live", model=model) == 0 for model in MODELS)


def test_the_doors_delivered_what_the_models_committed(server: TritonServer) -> None:
    for model in MODELS:
        delivered = sum(total(server, "tokens_delivered", model=model, door=door) for door in FRONTS)
        assert 0 < delivered <= total(server, "tokens_committed", model=model)


def test_every_return_resumes_directly_and_looks_nothing_up(server: TritonServer) -> None:
    returns, resumes = settled(
        lambda: [total(server, "returns"), total(server, "resume", kind="direct")]
    )
    assert 0 < returns == resumes
    assert sum(total(server, "prefix_lookups_on_return", model=model) for model in MODELS) == 0


def test_time_to_first_token_is_a_histogram_that_counts_every_answer(server: TritonServer) -> None:
    for door in FRONTS:
        count = metric(server, "token_router_ttft_seconds_count", door=door)
        assert count >= 10
        assert metric(server, "token_router_ttft_seconds_bucket", door=door, le="+Inf") == count


def test_the_models_see_each_other(server: TritonServer) -> None:
    for door in FRONTS:
        assert metric(server, "token_router_peer_up", door=door) == len(MODELS)
