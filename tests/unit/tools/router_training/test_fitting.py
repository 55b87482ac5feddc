"""Heads learn what can be learnt, and a cutoff catches what it says it catches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from python_backend.runner.heads.modules import CiterMlp, R2RClassifier
from python_backend.runner.heads.named_tensors import NamedTensors
from router_backend.core.errors import ConfigError
from tools.router_training.collecting import Samples
from tools.router_training.fitting import Cut, chosen, cuts, fitted, risks
from tools.router_training.networks import CiterHead, R2RHead, Shape

SHAPE = Shape(hidden_size=6, topk=4, width=12, blocks=2)
EMBEDDING = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))


def samples(count: int = 800, seed: int = 0) -> Samples:
    """The large model differs exactly where the first component of the hidden state is large."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 6, generator=generator)
    topk = torch.randn(count, 4, generator=generator).sort(descending=True).values
    tokens = torch.randint(0, 20, (count,), generator=generator)
    return Samples(hidden, tokens, topk, hidden[:, 0] > 1.0, torch.arange(count) // 10)


def head(algorithm: str) -> CiterHead | R2RHead:
    torch.manual_seed(3)
    return CiterHead(SHAPE) if algorithm == "citer" else R2RHead(SHAPE, EMBEDDING)


def served(trained: CiterHead | R2RHead, seen: Samples) -> Tensor:
    """The artefact's score as the runner computes it."""
    tensors = NamedTensors(trained.artefact(), "test")
    if isinstance(trained, CiterHead):
        score = CiterMlp.take(tensors, SHAPE.hidden_size)(seen.hidden)
    else:
        classifier = R2RClassifier.take(tensors, SHAPE.hidden_size, EMBEDDING.shape[1])
        score = classifier(seen.hidden, EMBEDDING[seen.tokens], seen.topk_logits)
    tensors.refuse_rest()
    return score


@pytest.mark.parametrize("algorithm", ["citer", "r2r"])
def test_a_trained_head_routes_what_differs_and_little_else(algorithm: str) -> None:
    trained, unseen = head(algorithm), samples(seed=9)
    fitted(trained, samples(3000), epochs=30, seed=1)

    best = chosen(cuts(risks(trained, unseen), unseen.differs, algorithm), 0.95)

    assert best.recall >= 0.95
    assert best.share < 2 * float(unseen.differs.float().mean())
    score = served(trained, unseen)
    routed = score >= best.cutoff if algorithm == "r2r" else score < best.cutoff
    assert float(routed[unseen.differs].float().mean()) == pytest.approx(best.recall, abs=0.01)
    assert float(routed.float().mean()) == pytest.approx(best.share, abs=0.01)


def test_the_same_seed_gives_the_same_head() -> None:
    losses = [fitted(head("citer"), samples(), epochs=2, seed=5) for _ in range(2)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("differs", [False, True])
def test_models_that_always_or_never_differ_teach_nothing(differs: bool) -> None:
    same = samples(20)
    one_sided = Samples(same.hidden, same.tokens, same.topk_logits, torch.full((20,), differs), same.prompt)
    with pytest.raises(ConfigError, match=f"differ in {20 * differs} of 20 tokens"):
        fitted(head("citer"), one_sided, epochs=1, seed=1)


def test_a_cut_routes_the_riskiest_tokens_until_the_recall_is_reached() -> None:
    risk = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.1])
    differs = torch.tensor([True, False, True, False, False])

    half, whole = cuts(risk, differs, "r2r", (0.5, 1.0))

    assert (half.recall, half.share, whole.recall, whole.share) == pytest.approx((0.5, 0.2, 1.0, 0.6))
    assert half.cutoff == pytest.approx(0.9, abs=1e-5)
    assert cuts(risk, differs, "citer", (1.0,))[0].cutoff == pytest.approx(0.3, abs=1e-5)
    with pytest.raises(ConfigError, match="never differ in the held-out prompts"):
        cuts(risk, torch.zeros(5, dtype=torch.bool), "r2r")


def test_the_cheapest_cut_that_is_good_enough_is_chosen() -> None:
    found = [Cut(0.5, 0.9, 0.1), Cut(0.96, 0.4, 0.2), Cut(1.0, 0.1, 0.6)]
    assert chosen(found, 0.95) == found[1]
    assert chosen(found, 0.97) == found[2]


def test_whole_prompts_are_held_out() -> None:
    training, held_out = samples(100).split(0.25)
    assert set(training.prompt.tolist()) & set(held_out.prompt.tolist()) == set()
    assert (len(training), len(held_out)) == (70, 30)
