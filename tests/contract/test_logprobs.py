"""Reported log-probabilities against transformers: of each token, its author's, and nobody else's.

The reference reads the committed text once per model and takes the softmax of the raw logits; whatever
was sampled, penalised, banned or discarded on the way must not show.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from python_backend.loops.base import Ask
from tests.contract.demand import Pair, demo_pair, deployment, drawn, stitch, tiny_pair
from tests.contract.routed_system import Client, RoutedSystem
from tests.reference import Reader
from tests.source_tree import ROOT

CLOSE = 1e-4
"""Both compute in float64, but transformers keeps its table of rotations in float32."""
TOP = 5
BENT = {
    "temperature": 1.2,
    "top_k": 40,
    "repetition_penalty": 1.3,
    "logit_bias": ((20, 2.0),),
    "bad_ids": ((21,), (22, 23)),
    "min_tokens": 4,
}


def expected(pair: Pair, prompt: tuple[int, ...], client: Client) -> list[tuple[float, list[float]]]:
    """(own, likeliest) of each token, by the model that wrote it."""
    readers = [Reader(model) for model in pair.referee.models]
    found, text = [], list(prompt)
    for token, author in zip(client.tokens, client.authors, strict=True):
        logp = torch.log_softmax(readers[author].logits(text).double(), dim=-1)
        found.append((float(logp[token]), logp.topk(TOP).values.tolist()))
        text.append(token)
    return found


@pytest.mark.case("F28")
@pytest.mark.parametrize("pair", [demo_pair(), tiny_pair("llama", "qwen3")], ids=["demo", "tiny"])
def test_every_committed_token_has_its_authors_log_probabilities(pair: Pair) -> None:
    jobs = [replace(job, policy=stitch(pair.cutoffs[1])) for job in drawn(pair, 61, 16)]
    asks = [replace(job.ask, logprobs=TOP, **(BENT if number % 2 else {})) for number, job in enumerate(jobs)]
    with RoutedSystem(deployment(pair, (2, 2), block_size=4, batch_tokens_max=32), ROOT) as system:
        clients = system.answers([*asks, *(job.ask for job in jobs)], at_once=8)

    authors: set[int] = set()
    for job, client in zip(jobs, clients[: len(jobs)], strict=True):
        authors |= set(client.authors)
        reports = [report for piece in client.pieces for report in piece.logprobs]
        assert [report.own.token_id for report in reports] == client.tokens
        for report, (own, top) in zip(reports, expected(pair, job.prompt, client), strict=True):
            np.testing.assert_allclose(report.own.logprob, own, atol=CLOSE)
            np.testing.assert_allclose([likely.logprob for likely in report.top], top, atol=CLOSE)
    assert authors == {0, 1}
    assert sum(client.finish.discarded_tokens for client in clients) > 0
    assert not [piece for client in clients[len(jobs) :] for piece in client.pieces if piece.logprobs]


@pytest.mark.case("F28")
def test_streamed_and_whole_answers_report_the_same() -> None:
    pair = demo_pair()
    asks = [
        Ask(input_ids=(5, 6, 7), max_tokens=24, seed=3, temperature=0.9, logprobs=2, is_streaming=streaming)
        for streaming in (True, False)
    ]
    with RoutedSystem(deployment(pair), ROOT) as system:
        streamed, whole = system.answers(asks, at_once=1)
    reports = [report for piece in streamed.pieces for report in piece.logprobs]
    assert len(whole.pieces) == 1 < len(streamed.pieces)
    assert (tuple(reports), len(reports)) == (whole.pieces[0].logprobs, len(whole.tokens))
