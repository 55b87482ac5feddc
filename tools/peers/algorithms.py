"""The paper's five routing algorithms on random weights: their heads, their cutoffs, their chances.

Ours runs the real policies, signals and heads included. A baseline routes with coins of the chances that were
seen in ours and pays nothing for a signal, which is to its advantage.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.metrics_page import read, total
from tools.peers.pair import NAMES, Pair
from tools.peers.routed import Routed
from tools.peers.workload import LARGE, SMALL, Coins, Workload, question

SHARE = 0.35
"""Of the tokens, the large model's: R2R's on Qwen3-0.6B and 32B in the paper."""
CLOSE = 0.03
TRIES = 12
TRIAL_N, TRIAL_TOKENS = 8, 48
TOPK = 100
METRICS_S = 1.0
"""The page of metrics may be half a second old."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """`cutoffs` are searched between; `rises`: a higher one means more of the large model."""

    name: str
    cutoffs: tuple[float, float] | None
    rises: bool = False
    keeps: bool = False
    returns_at_once: bool = True

    def options(self, cutoff: float) -> dict[str, Any]:
        if self.cutoffs is None:
            return dict(zip(NAMES, (1.0 - SHARE, SHARE), strict=True))
        return {"cutoff": cutoff}


ALGORITHMS = (
    Algorithm("r_stitch", (0.9, 1.0), returns_at_once=False),
    Algorithm("citer", (0.0, 1.0), rises=True),
    Algorithm("r2r", (0.0, 1.0)),
    Algorithm("co_llm", (0.0, 1.0)),
    Algorithm("mixture", None, keeps=True),
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """An algorithm with the cutoff that gives the share at some length of text.

    `comes_back`: after a token of the large model, how often the small one wrote the next.
    """

    algorithm: Algorithm
    options: Mapping[str, Any]
    comes_back: float

    def coins(self, share: float) -> Coins:
        """That route as it did when the large model wrote `share` of the tokens. Where leaving discards,
        share = (p / q) / (1 - p + p / q) for p = leave, q = comes_back; ME's chances are its weights."""
        if self.algorithm.keeps:
            return Coins(SHARE, 1.0 - SHARE, keeps=True)
        back = share * self.comes_back
        return Coins(back / (1.0 - share + back), self.comes_back)


async def chosen(algorithm: Algorithm, ours: Routed, context: int, vocab_size: int) -> Chosen:
    """The cutoff by bisection on the share of short answers to prompts of `context` tokens."""
    low, high = algorithm.cutoffs or (0.0, 0.0)
    for _ in range(TRIES if algorithm.cutoffs else 1):
        cutoff = (low + high) / 2
        asked = replace(ours, policy=algorithm.name, options=algorithm.options(cutoff))
        small, large = await _written(asked, context, vocab_size)
        share = large / (small + large)
        if abs(share - SHARE) < CLOSE:
            break
        low, high = (cutoff, high) if (share < SHARE) == algorithm.rises else (low, cutoff)
    if algorithm.returns_at_once:
        return Chosen(algorithm, asked.options, 1.0)
    before = await _returns(asked)
    _, large = await _written(asked, context, vocab_size)
    returned = await _returns(asked) - before
    return Chosen(algorithm, asked.options, min(1.0, max(1, returned) / max(1, large)))


async def _written(ours: Routed, context: int, vocab_size: int) -> tuple[int, int]:
    """Tokens of the small and of the large model in one set of answers; the prompts are always the same."""
    workload = Workload(TRIAL_N, TRIAL_TOKENS, context, is_spread=False)

    async def answer(client: int) -> list[int]:
        asked = question(workload, client, 1, vocab_size)
        return [writer async for part in ours.writers(asked) for writer in part]

    writers = list(itertools.chain(*await asyncio.gather(*map(answer, range(TRIAL_N)))))
    return writers.count(SMALL), writers.count(LARGE)


async def _returns(ours: Routed) -> int:
    """How often the large model has handed over, when the page of metrics has had time to hear of it."""
    await asyncio.sleep(METRICS_S)
    samples = await asyncio.to_thread(read, ours.server.metrics_url)
    return round(total(samples, "handoffs_total", src=NAMES[LARGE]))


def write_heads(pair: Pair) -> None:
    """Random heads of the published shapes (R2R's two blocks of 128) beside the small model's weights."""
    import torch

    from tools.router_training.networks import CiterHead, R2RHead, Shape

    torch.manual_seed(0)
    size, embedding = _embedding(pair.small)
    shape = Shape(size, TOPK)
    artefacts = {
        "citer": ("citer_mlp", CiterHead(shape).artefact()),
        "r2r": ("r2r_classifier", R2RHead(shape, embedding).artefact()),
        "co_llm": ("defer_row", {"row": torch.randn(size) / size**0.5}),
    }
    for name, (kind, tensors) in artefacts.items():
        _write_head(pair.small / "heads" / name, name, {"kind": kind, "hidden_size": size}, tensors)


def _embedding(folder: Path) -> tuple[int, Any]:
    from safetensors.torch import load_file

    embedding = load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    return embedding.shape[1], embedding


def _write_head(folder: Path, name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    from python_backend.runner.heads.card import OPERATORS, WEIGHTS_FILE, make_card, write_card
    from python_backend.runner.heads.vocabulary import tokenizer_sha

    card = {
        **values,
        "algorithm": name,
        "small": NAMES[SMALL],
        "large": NAMES[LARGE],
        "tokenizer_sha": tokenizer_sha(folder.parent.parent),
        "topk": TOPK if name == "r2r" else 0,
        "cutoff": 0.5,
        "operator": OPERATORS[name],
        "source": "random weights",
    }
    folder.mkdir(parents=True)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / WEIGHTS_FILE)
    write_card(folder, make_card(card, name))
