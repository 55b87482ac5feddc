"""Whatever else is in the batch, the answer is the sequential reference's, token for token and author
for author; and parking means that a return costs exactly the tokens that were not seen.

In float64 the order in which a batch sums cannot reach a decision, so equality is exact and the same in
every run; float32, as served, is compared where no decision is that close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests import reference
from tests.contract.demand import (
    CLEAR,
    Pair,
    Policy,
    always,
    demo_pair,
    deployment,
    drawn,
    end_ids,
    never,
    stitch,
    tiny_pair,
)
from tests.contract.routed_system import RoutedSystem
from tests.contract.sequential import Sequential
from tests.contract.verdict import (
    check_answers,
    check_parking,
    cutoff_nats,
    expected,
    referred,
    seen,
    settled,
)
from tests.reference import LARGE, SMALL
from tests.source_tree import ROOT

PROMPTS = 300
THRESHOLDS = [(small, large) for small in range(1, 5) for large in range(1, 5)]
WIDTHS = (16, 7, 12, 1, 16, 3, 9, 16, 2, 14, 5, 16, 8, 11, 4, 6)
"""Requests at once, for each pair of thresholds."""
BLOCK_SIZES = (16, 4, 8, 32)
BUDGETS = (16, 512, 48, 21)
"""Tokens per batch: most prompts come in chunks."""


@pytest.mark.parametrize("number", range(len(THRESHOLDS)), ids=[f"{s}-{g}" for s, g in THRESHOLDS])
def test_routed_answers_equal_the_reference_and_returns_cost_the_unseen_suffix(number: int) -> None:
    """Together: 300 prompts, each pair of thresholds 1..4."""
    pair = demo_pair()
    jobs = drawn(pair, seed=2024, count=PROMPTS)[number :: len(THRESHOLDS)]
    batches = {
        "block_size": BLOCK_SIZES[number % len(BLOCK_SIZES)],
        "batch_tokens_max": BUDGETS[number // 4 % len(BUDGETS)],
    }
    with RoutedSystem(deployment(pair, THRESHOLDS[number], **batches), ROOT) as system:
        runs = check_answers(pair, system, jobs, at_once=WIDTHS[number])
        check_parking(system, runs)


@pytest.mark.parametrize(
    "families", [("llama", "qwen3"), ("qwen3", "llama"), ("qwen2", "qwen3")], ids="-".join
)
def test_every_policy_equals_the_reference_on_random_models(families: tuple[str, str]) -> None:
    """The same prompts under each policy; an end token of either model ends what either has written."""
    pair = tiny_pair(*families)
    shapes = drawn(pair, seed=7, count=30)
    jobs = [replace(job, policy=policy) for job in shapes for policy in pair.policies]
    with RoutedSystem(deployment(pair, (3, 2), block_size=4, batch_tokens_max=32), ROOT) as system:
        runs = check_answers(pair, system, jobs, at_once=16)
        check_parking(system, runs)
    assert ends_seen(pair, runs) == {(author, owner) for author in (SMALL, LARGE) for owner in (SMALL, LARGE)}


def ends_seen(pair: Pair, runs: Sequence[Sequential]) -> set[tuple[int, int]]:
    """(who wrote it, whose it is) of the end tokens that ended an answer."""
    owners = {token: owner for owner in (SMALL, LARGE) for token in end_ids(pair.referee.models[owner])}
    stopped = [run.answer for run in runs if run.answer.reason == "stop"]
    return {(answer.authors[-1], owners[answer.tokens[-1]]) for answer in stopped}


@pytest.mark.parametrize(
    ("model", "policies"),
    [(SMALL, (never(), stitch(1.5))), (LARGE, (always(), stitch(-1.0)))],
    ids=["never", "always"],
)
def test_never_is_the_small_model_alone_and_always_is_the_large_one(
    model: int, policies: tuple[Policy, ...]
) -> None:
    pair = demo_pair()
    jobs = [replace(job, policy=policy) for job in drawn(pair, seed=3, count=10)[3:] for policy in policies]
    with RoutedSystem(deployment(pair), ROOT) as system:
        clients = system.answers([job.ask for job in jobs], at_once=8)
    referee = pair.referee
    alone = {
        job.prompt: reference.generate(referee.models[model], job.prompt, job.max_tokens, referee.eos_ids)
        for job in jobs
    }
    assert [client.tokens for client in clients] == [alone[job.prompt].tokens for job in jobs]
    assert {author for client in clients for author in client.authors} == {model}


def test_streamed_text_joined_is_the_text_of_one_response() -> None:
    pair = demo_pair()
    jobs = drawn(pair, seed=5, count=16)[4:]
    both = [replace(job, is_streaming=is_streaming).ask for is_streaming in (True, False) for job in jobs]
    with RoutedSystem(deployment(pair, (2, 2)), ROOT) as system:
        clients = system.answers(both, at_once=16)
    streamed, whole = clients[: len(jobs)], clients[len(jobs) :]
    assert [client.text for client in streamed] == [client.text for client in whole]
    assert [client.tokens for client in streamed] == [client.tokens for client in whole]
    assert {len(client.pieces) for client in whole} == {1}
    assert max(len(client.pieces) for client in streamed) > 2


def test_float32_as_served_equals_the_reference_where_no_decision_is_a_hair_away() -> None:
    pair = demo_pair("float32")
    jobs = drawn(pair, seed=9, count=40)
    with RoutedSystem(deployment(pair, (2, 3)), ROOT) as system:
        clients = system.answers([job.ask for job in jobs], at_once=16)
        settled(system)
        judged = 0
        for job, client in zip(jobs, clients, strict=True):
            run = referred(pair, job, client.tokens)
            if run.is_clear(CLEAR, cutoff_nats(pair, job)):
                judged += 1
                assert seen(system, client) == expected(pair, job, run), job
    assert judged >= 36
