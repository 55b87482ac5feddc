"""CITER, R2R and Co-LLM over two real subservers: token for token what the published networks decide.

The reference goes one request at a time, on transformers and on the networks of the published code; the
system loads what `tools.convert_router` made of them. The pair's output layers are padded differently, and
each model has end tokens of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from python_backend.config import Deployment
from python_backend.loops.base import Ask
from tests.contract import heads
from tests.contract.routed_system import Client, RoutedSystem
from tests.published_routers import HIDDEN, VOCAB
from tests.reference import LARGE, SMALL, Answer
from tests.tiny_models import TinyModel, frozen, tiny_model_dir

EOS_IDS = frozenset({1, 5, 7, 8})
MODELS = (
    TinyModel("qwen3", 21, VOCAB, VOCAB + 3, fields=frozen(hidden_size=HIDDEN, eos_token_id=[1, 5])),
    TinyModel("llama", 22, VOCAB, VOCAB + 24, fields=frozen(eos_token_id=[7, 8])),
)
FLOAT32_MAX = torch.finfo(torch.float32).max
CLIFF = 3e38
CLEAR = 1e-5
"""Scores are float32; what is this close to a cutoff could go either way."""


@dataclass(frozen=True)
class Step:
    """What a router sees of one sampled token."""

    hidden: Tensor
    token: int
    logits: Tensor


Score = Callable[[Step], float]


def models() -> tuple[PreTrainedModel, PreTrainedModel]:
    return heads.network(MODELS[SMALL]), heads.network(MODELS[LARGE])


@torch.inference_mode()
def read(model: int, text: Sequence[int]) -> Step:
    seen: Any = models()[model](torch.tensor([list(text)]), output_hidden_states=True)
    logits = seen.logits[0, -1, :VOCAB]
    return Step(seen.hidden_states[-1][0, -1], int(logits.argmax()), logits)


def sequential(ask: Ask, leaves: Callable[[Step], bool]) -> tuple[Answer, list[Step]]:
    """The small model writes; what it would rather not, the large one writes in its place. And its steps."""
    answer, steps, text = Answer(), [], list(ask.input_ids or ())
    while len(answer.tokens) < (ask.max_tokens or 0) and answer.reason != "stop":
        step, author = read(SMALL, text), SMALL
        steps.append(step)
        if leaves(step):
            step, author = read(LARGE, text), LARGE
            answer.discards += 1
        text.append(step.token)
        answer.tokens.append(step.token)
        answer.authors.append(author)
        answer.reason = "stop" if step.token in EOS_IDS else "length"
    return answer, steps


def confidence(step: Step) -> float:
    return float(heads.confidence(step.hidden[None])[0])


def divergence(step: Step) -> float:
    tokens = torch.tensor([step.token])
    return float(heads.divergence(MODELS[SMALL], step.hidden[None], tokens, step.logits[None])[0])


def deferral(step: Step) -> float:
    return float(heads.deferral(MODELS[SMALL], step.hidden[None])[0])


def on_the_cliff(step: Step) -> bool:
    """Whether the broken head's features overflow: it takes infinity from infinity then."""
    return float(step.hidden[0]) * CLIFF > FLOAT32_MAX


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("heads")
    loaded = heads.write_heads(folder, MODELS[SMALL])
    heads.write_head(folder / "cliff", MODELS[SMALL], ("citer", "citer_mlp"), cliff())
    with RoutedSystem(deployment({**loaded, "cliff": "cliff"}), folder) as running:
        yield running


def cliff() -> dict[str, Tensor]:
    """A head that says 0.27 until hidden[0] is too large; then infinity minus infinity."""
    up = torch.zeros(2, HIDDEN)
    up[:, 0] = CLIFF
    biases = {"up.bias": torch.zeros(2), "output.bias": -torch.ones(1)}
    return {"up.weight": up, "output.weight": torch.tensor([[1.0, -1.0]]), **biases}


def deployment(loaded: dict[str, str]) -> Deployment:
    base = {"dtype": "float64", "kv_tokens": 2048, "block_size": 4, "batch_tokens_max": 24, "batch_max": 8}
    dirs = [str(tiny_model_dir(model)) for model in MODELS]
    models = [
        {**base, "name": "small", "model_dir": dirs[SMALL], "threshold": 2, "heads": loaded},
        {**base, "name": "large", "model_dir": dirs[LARGE], "threshold": 1},
    ]
    front = {"heartbeat_ms": 50, "peer_timeout_s": 20}
    return Deployment.model_validate({"models": models, "deadline_ms": 5, "front": front})


def asks(policy: str, seed: int, **params: float | str) -> list[Ask]:
    rng = random.Random(seed)
    prompts = [tuple(rng.choices(range(9, VOCAB), k=rng.randint(1, 30))) for _ in range(24)]
    return [
        Ask(input_ids=prompt, max_tokens=rng.randint(1, 24), policy=policy, policy_params=dict(params))
        for prompt in prompts
    ]


def check(client: Client, answer: Answer) -> None:
    assert (client.tokens, client.authors) == (answer.tokens, answer.authors)
    end = client.finish
    assert (end.reason.value, end.discarded_tokens) == (answer.reason, answer.discards)


CASES: dict[str, tuple[dict[str, float | str], Score, Callable[[float], bool], float]] = {
    "citer": ({"cutoff": 0.1}, confidence, lambda score: score < 0.1, 0.1),
    "citer, the card's cutoff": ({}, confidence, lambda score: score < 0.2, 0.2),
    "r2r": ({"cutoff": 0.45}, divergence, lambda score: score >= 0.45, 0.45),
    "r2r, the file's cutoff": ({}, divergence, lambda score: score >= 0.40596, 0.40596),
    "co_llm": ({"cutoff": 0.55}, deferral, lambda score: score > 0.55, 0.55),
}


@pytest.mark.parametrize("case", CASES)
def test_a_published_router_decides_on_the_server_as_in_its_own_code(system: RoutedSystem, case: str) -> None:
    params, score, fires, cutoff = CASES[case]
    asked = asks(case.partition(",")[0], seed=len(case), **params)

    clients = system.answers(asked, at_once=8)

    authors: set[int] = set()
    for ask, client in zip(asked, clients, strict=True):
        answer, steps = sequential(ask, lambda step: fires(score(step)))
        assert all(abs(score(step) - cutoff) > CLEAR for step in steps), "choose another seed"
        check(client, answer)
        authors |= set(answer.authors)
    assert authors == {SMALL, LARGE}


def test_a_score_that_is_no_number_keeps_its_row_and_is_counted(system: RoutedSystem) -> None:
    """All rows leave but the unreadable ones, which share batches with them."""
    before = system.settled_figures()[SMALL]["unreadable_signals"]
    asked = asks("citer", seed=77, head="cliff", cutoff=0.9)

    clients = system.answers(asked, at_once=8)

    unreadable = 0
    for ask, client in zip(asked, clients, strict=True):
        answer, steps = sequential(ask, lambda step: not on_the_cliff(step))
        check(client, answer)
        unreadable += sum(map(on_the_cliff, steps))
    small, large = system.settled_figures()
    assert small["unreadable_signals"] - before == unreadable > 0
    assert large["unreadable_signals"] == 0


def test_no_model_writes_an_id_of_the_padding(system: RoutedSystem) -> None:
    asked = [
        Ask(input_ids=(9, 10), max_tokens=60, temperature=2.0, seed=seed, ignore_eos=True, policy="random")
        for seed in range(12)
    ]
    clients = system.answers(asked, at_once=8)

    assert max(token for client in clients for token in client.tokens) < VOCAB
    assert [subserver.info.vocab_size for subserver in system.subservers] == [VOCAB, VOCAB]


def test_a_head_that_the_small_model_has_not_is_refused_at_the_door(system: RoutedSystem) -> None:
    ask = Ask(input_ids=(9,), policy="r2r", policy_params={"head": "other"})
    (client,) = system.answers([ask], at_once=1)

    loaded = "loaded: citer, cliff, co_llm, r2r"
    assert f"r2r.head: 'other' is not loaded on small; {loaded}" in client.finish.message
