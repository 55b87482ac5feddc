"""Every policy over real subservers answers what its sequential definition answers on transformers.

The definitions are `tests.oracle`'s; the writers are random models, one request at a time, one pass per
token. Requests of all policies share batches, and the pools are so small that parked caches are evicted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

from python_backend.config import Deployment
from python_backend.loops.base import Ask
from tests import oracle, reference
from tests.contract.routed_system import Client, RoutedSystem
from tests.oracle import VOCAB, Answer, Reading, Rolling, Rule
from tests.source_tree import ROOT
from tests.tiny_models import TinyModel, frozen, tiny_model_dir

NAMES = ("small", "large", "huge")
ROWS = (VOCAB, VOCAB + 28, VOCAB + 4)
FAMILIES = ("llama", "qwen3", "qwen2")
END = 20
"""A token that all of these models write now and then."""
MODELS = [
    TinyModel(family, seed, VOCAB, rows, fields=frozen(eos_token_id=END))
    for seed, (family, rows) in enumerate(zip(FAMILIES, ROWS, strict=True), 51)
]
REQUESTS = 25
MODES = [*((2, mode) for mode in ("delayed", "eager_async", "step_sync", "model_sync")), (3, "delayed")]
PAIR: dict[str, tuple[str, dict[str, Any], Rule]] = {
    "r_stitch": ("r_stitch", {"cutoff": 0.45}, oracle.r_stitch(0.45)),
    "max_prob": ("max_prob", {"cutoff": 0.3}, oracle.max_prob(0.3)),
    "entropy": ("entropy", {"cutoff": 2.0}, oracle.entropy(2.0)),
    "random": ("random", {"p": 0.35}, oracle.random(0.35)),
    "every third": ("fixed", {"mode": "every", "k": 3}, oracle.every(3)),
    "rolling": (
        "rolling_entropy",
        {"cutoff": 2.2, "return_cutoff": 1.8, "window": 2, "max_stay": 4},
        Rolling(2.2, 1.8, 2, max_stay=4),
    ),
    "mixture": ("mixture", {"small": 0.75, "large": 0.25}, oracle.mixture(0.75, 0.25)),
    "small alone": ("fixed", {"mode": "never"}, oracle.alone(0)),
    "large to the end": ("r_stitch", {"cutoff": -1.0}, oracle.r_stitch(-1.0)),
}
THREE: dict[str, tuple[str, dict[str, Any], Rule]] = {
    "mixture": ("mixture", dict(zip(NAMES, (0.5, 0.3, 0.2), strict=True)), oracle.mixture(0.5, 0.3, 0.2)),
    "one of them": ("mixture", {"large": 1.0}, oracle.alone(1)),
    "to a named one": ("entropy", {"cutoff": 2.0, "large": "large"}, oracle.entropy(2.0)),
}


@dataclass(frozen=True)
class ModelWriter:
    """An `oracle.Writer` with a model inside."""

    model: int

    @torch.inference_mode()
    def read(self, text: Sequence[int]) -> Reading:
        seen: Any = network(self.model)(torch.tensor([list(text)]))
        logits = seen.logits[0, -1, :VOCAB]
        most = float(logits.softmax(-1).max())
        return Reading(int(logits.argmax()), reference.entropy_nats(logits), most, {})


@cache
def network(model: int) -> Any:
    return reference.load(tiny_model_dir(MODELS[model]), torch.float64)


def deployment(models: int, **settings: Any) -> Deployment:
    own = [
        {
            "name": name,
            "model_dir": str(tiny_model_dir(model)),
            "dtype": "float64",
            "kv_tokens": 320,
            "block_size": 4,
            "batch_tokens_max": 24,
            "batch_max": 8,
            "threshold": threshold,
        }
        for name, model, threshold in zip(NAMES[:models], MODELS, (3, 2, 1), strict=False)
    ]
    front = {"heartbeat_ms": 50, "peer_timeout_s": 20}
    return Deployment.model_validate({"models": own, "deadline_ms": 5, "front": front, **settings})


def asked(case: tuple[str, dict[str, Any], Rule], rng: random.Random) -> Ask:
    policy, params, _ = case
    prompt = tuple(rng.choices(range(2, VOCAB), k=rng.randint(1, 40)))
    most, seed = rng.randint(1, 24), rng.randrange(2**40)
    return Ask(input_ids=prompt, max_tokens=most, seed=seed, policy=policy, policy_params=params)


def check(ask: Ask, rule: Rule, client: Client, writers: Sequence[ModelWriter]) -> Answer:
    answer = Answer(ask.input_ids or (), ask.max_tokens or 0, ask.seed or 0)
    rule(writers, answer)  # type: ignore[arg-type]
    assert (client.tokens, client.authors) == (answer.tokens, answer.authors), ask
    end = client.finish
    assert (end.reason.value, end.discarded_tokens) == (answer.reason, answer.discarded), ask
    return answer


@pytest.fixture(autouse=True)
def end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "END", END)


@pytest.mark.parametrize(("models", "mode"), MODES)
def test_all_policies_in_shared_batches_answer_as_their_definitions_say(models: int, mode: str) -> None:
    cases = list((PAIR if models == 2 else THREE).values())
    rng = random.Random(models)
    jobs = [(case, asked(case, rng)) for _ in range(REQUESTS) for case in cases]
    writers = [ModelWriter(model) for model in range(models)]

    with RoutedSystem(deployment(models, mode=mode), ROOT) as system:
        clients = system.answers([ask for _, ask in jobs], at_once=16)
        figures = system.settled_figures()

    answers = [
        check(ask, case[2], client, writers) for (case, ask), client in zip(jobs, clients, strict=True)
    ]
    committed = sum(len(answer.tokens) for answer in answers)
    assert sum(one["committed"] for one in figures) == committed
    assert sum(one["discarded"] for one in figures) == sum(answer.discarded for answer in answers) > 0
    assert all(one["sampled"] == one["committed"] + one["discarded"] for one in figures)
    assert {answer.reason for answer in answers} == {"stop", "length"}
    assert sum(one["parked_evictions"] for one in figures) > 0
    assert {author for answer in answers for author in answer.authors} == set(range(models))
