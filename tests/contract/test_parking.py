"""A parked sequence may lose its cache: that costs time and changes nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.demand import always, demo_pair, deployment, drawn, tiny_pair
from tests.contract.routed_system import RoutedSystem
from tests.contract.verdict import check_answers, figures_of, settled
from tests.source_tree import ROOT

POOL_TOKENS = 480
"""Room for the longest request and for little beside it."""
UNTOUCHED = (
    "sampled",
    "committed",
    "discarded",
    "handoffs_received",
    "handoff_tokens",
    "returns",
    "forced_keeps",
)
"""What must not depend on memory."""


@pytest.mark.parametrize("block_size", [16, 4])
def test_evicted_parked_sequences_are_recomputed_and_the_answers_stay(block_size: int) -> None:
    pair = tiny_pair("qwen3", "llama")
    jobs = drawn(pair, seed=31, count=60)
    small_pool = deployment(pair, (2, 2), kv_tokens=POOL_TOKENS, block_size=block_size, batch_tokens_max=64)
    with RoutedSystem(small_pool, ROOT) as system:
        runs = check_answers(pair, system, jobs, at_once=16)
        both = settled(system)
    for model, figures in enumerate(both):
        wanted = figures_of(runs, model)
        assert {name: figures[name] for name in UNTOUCHED} == {name: wanted[name] for name in UNTOUCHED}
        assert figures["returns"] == figures["direct_resumes"] + figures["recomputes"]
        assert figures["prefix_lookups_on_return"] >= figures["recomputes"] > 0
        assert figures["parked_evictions"] >= figures["recomputes"]


def test_the_demo_pair_survives_a_pool_for_one() -> None:
    """Every request visits the large model at each token, so parked caches are taken all the time."""
    pair = demo_pair()
    jobs = [replace(job, policy=always(), max_tokens=min(job.max_tokens, 8)) for job in drawn(pair, 37, 16)]
    with RoutedSystem(deployment(pair, kv_tokens=POOL_TOKENS), ROOT) as system:
        check_answers(pair, system, jobs, at_once=8)
        both = settled(system)
    assert sum(figures["recomputes"] for figures in both) > 0
