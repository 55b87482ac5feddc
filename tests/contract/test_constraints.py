"""Penalties, bans, biases and least lengths do not depend on who writes the token.

The reference is `tests.reference` with transformers' own logits processors, which are written apart from
ours, on the text that the two models wrote together. Routing looks at the raw logits, as without them.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

from python_backend.loops.base import Ask
from tests.contract.demand import Pair, Policy, always, deployment, never, stitch, tiny_pair
from tests.contract.routed_system import Client, RoutedSystem
from tests.reference import LARGE, SMALL, Answer, Reader, generate_routed
from tests.source_tree import ROOT

MAX_TOKENS = 24
REQUESTS = 10
"""For each policy."""


class ConstrainedReader(Reader):
    """Chooses from the logits that transformers and OpenAI's formula make of the model's."""

    def __init__(self, model: PreTrainedModel, ask: Ask, eos_ids: Collection[int]) -> None:
        super().__init__(model)
        self._ask = ask
        self._prompt_len = len(ask.input_ids or ())
        self._processors = processors(ask, sorted(eos_ids))

    def choice(self, logits: torch.Tensor, text: Sequence[int]) -> int:
        ids = torch.tensor([list(text)])
        repeated = RepetitionPenaltyLogitsProcessor(self._ask.repetition_penalty or 1.0)
        edited: Any = repeated(ids, logits[None].clone())  # type: ignore[arg-type]
        counts = torch.bincount(ids[0, self._prompt_len :], minlength=len(logits))
        edited -= (self._ask.presence_penalty or 0.0) * (counts > 0)
        edited -= (self._ask.frequency_penalty or 0.0) * counts
        return int(self._processors(ids, edited).argmax())


def processors(ask: Ask, eos_ids: list[int]) -> LogitsProcessorList:
    """Bias, then bans, then the least length."""
    found = LogitsProcessorList()
    if ask.logit_bias:
        found.append(SequenceBiasLogitsProcessor([[[token], bias] for token, bias in ask.logit_bias]))
    if ask.bad_ids:
        found.append(NoBadWordsLogitsProcessor([list(run) for run in ask.bad_ids]))
    if ask.min_tokens:
        prompt_len = len(ask.input_ids or ())
        found.append(MinNewTokensLengthLogitsProcessor(prompt_len, ask.min_tokens, eos_ids))
    return found


def asked(pair: Pair, policy: Policy, rng: random.Random) -> Ask:
    """Any mixture of constraints; biases push the end tokens and bans cut common pairs."""
    ids = tuple(pair.words)
    return Ask(
        input_ids=tuple(rng.choices(ids, k=rng.randint(1, 20))),
        max_tokens=MAX_TOKENS,
        policy=policy[0],
        policy_params=policy[1],
        repetition_penalty=rng.choice((None, 0.8, 1.3)),
        presence_penalty=rng.choice((None, 0.02, -0.01)),
        frequency_penalty=rng.choice((None, 0.03, -0.01)),
        min_tokens=rng.choice((None, 10, MAX_TOKENS)),
        logit_bias=tuple((token, rng.uniform(-0.2, 0.2)) for token in rng.sample(range(97), 20)),
        bad_ids=tuple(tuple(rng.choices(ids, k=rng.choice((1, 2)))) for _ in range(100)),
    )


def referred(pair: Pair, ask: Ask, policy: Policy, is_constrained: bool = True) -> Answer:
    models, ends = pair.referee.models, pair.referee.eos_ids
    small, large = (
        ConstrainedReader(models[model], ask, ends) if is_constrained else Reader(models[model])
        for model in (SMALL, LARGE)
    )
    return generate_routed((small, large), ask.input_ids or (), MAX_TOKENS, ends, policy[2])


def told(client: Client) -> tuple[list[int], list[int], str]:
    return client.tokens, client.authors, client.finish.reason.value


def test_routed_answers_with_constraints_equal_transformers_own_processors() -> None:
    pair, rng = tiny_pair("llama", "qwen3"), random.Random(8)
    policies = (never(), always(), *map(stitch, pair.cutoffs))
    jobs = [(asked(pair, policy, rng), policy) for policy in policies for _ in range(REQUESTS)]

    with RoutedSystem(deployment(pair, (3, 2), block_size=4, batch_tokens_max=32), ROOT) as system:
        clients = system.answers([ask for ask, _ in jobs], at_once=16)

    answers = [referred(pair, *job) for job in jobs]
    assert [told(client) for client in clients] == [(a.tokens, a.authors, a.reason) for a in answers]
    plain = [referred(pair, *job, is_constrained=False) for job in jobs]
    assert sum(a.tokens != b.tokens for a, b in zip(answers, plain, strict=True)) > len(jobs) // 2
    assert {answer.reason for answer in answers} == {"stop", "length"}
    assert {author for answer in answers for author in answer.authors} == {SMALL, LARGE}


def test_no_model_ends_an_answer_before_its_least_length_though_tokens_are_discarded() -> None:
    """F08: two models with end tokens of their own, each biased towards all of them."""
    pair = tiny_pair("llama", "qwen3")
    ends = sorted(pair.referee.eos_ids)
    bias = tuple((token, 50.0) for token in ends)
    asks = [
        Ask(
            input_ids=(11, 12, 13),
            max_tokens=MAX_TOKENS,
            min_tokens=least,
            logit_bias=bias,
            policy=policy[0],
            policy_params=policy[1],
        )
        for policy in (never(), always(), *map(stitch, pair.cutoffs))
        for least in (0, 1, 10, MAX_TOKENS)
    ]
    with RoutedSystem(deployment(pair), ROOT) as system:
        clients = system.answers(asks, at_once=8)

    lengths = [min((ask.min_tokens or 0) + 1, MAX_TOKENS) for ask in asks]
    assert [len(client.tokens) for client in clients] == lengths
    for client, ask in zip(clients, asks, strict=True):
        assert not set(client.tokens[: ask.min_tokens]) & set(ends)
    assert sum(client.finish.discarded_tokens for client in clients) > 0


def test_a_pair_of_tokens_is_banned_though_two_models_would_write_one_each() -> None:
    """F21: what the two wrote in turns without the ban is what is banned, pair by pair."""
    pair = tiny_pair("llama", "qwen3")
    name, params, _ = stitch(pair.cutoffs[1])
    base = {"input_ids": (11, 12, 13), "max_tokens": MAX_TOKENS, "policy": name, "policy_params": params}
    base["ignore_eos"] = True
    with RoutedSystem(deployment(pair), ROOT) as system:
        (free,) = system.answers([Ask(**base)], at_once=1)
        turns = [at for at in range(1, MAX_TOKENS) if free.authors[at - 1] != free.authors[at]]
        banned = tuple((free.tokens[at - 1], free.tokens[at]) for at in turns)
        (held,) = system.answers([Ask(**base, bad_ids=banned)], at_once=1)
    assert turns
    assert not set(banned) & set(zip(held.tokens, held.tokens[1:], strict=False))


def test_a_request_that_bans_every_token_harms_no_other() -> None:
    """No answer can keep to it: it ends at its length, and its neighbours in the batch never know."""
    pair = tiny_pair("llama", "qwen3")
    ask = Ask(input_ids=(11, 12, 13), max_tokens=8, temperature=1.0, seed=4)
    nothing_left = tuple((token,) for token in range(97))
    with RoutedSystem(deployment(pair), ROOT) as system:
        (alone,) = system.answers([ask], at_once=1)
        bans = [replace(ask, bad_ids=nothing_left, temperature=heat, min_p=0.1) for heat in (0.0, 1.0)]
        clients = system.answers([*bans, ask, ask], at_once=4)
    assert [len(client.tokens) for client in clients[:2]] == [8, 8]
    assert [client.tokens for client in clients[2:]] == [alone.tokens] * 2
