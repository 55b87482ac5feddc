"""A pair of models in this process, under transformers: what the peers that are loops of their own share."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from tools.peers.pair import Pair

THREADS_MAX = 2
"""A small model is often faster on one thread: which is better is tried at the start."""
TRIED_STEPS = 20
TRIED_TOKENS = 512
"""In the cache while it is tried, as many as a run's texts have: on a short one attention costs nothing, and
one thread seems better than it is."""


@dataclass(slots=True)
class Reader:
    """One model's view of one request: its cache, and how many ids are in it."""

    model: Any
    cache: Any = field(default_factory=DynamicCache)
    read: int = 0

    @torch.inference_mode()
    def next_token(self, ids: Sequence[int]) -> int:
        unseen = torch.tensor([ids[self.read :]])
        logits = self.model(unseen, past_key_values=self.cache, use_cache=True, logits_to_keep=1).logits
        self.read = len(ids)
        return int(logits[0, -1].argmax())


class PairInProcess:
    """Both models, and the one thread in which they run."""

    def __init__(self, pair: Pair) -> None:
        self.small, self.large = (_loaded(folder) for folder in pair.folders.values())
        torch.set_num_threads(fastest_threads(self.large))
        self.turns = ThreadPoolExecutor(1)

    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def close(self) -> None:
        self.turns.shutdown(cancel_futures=True)


def _loaded(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def fastest_threads(model: Any) -> int:
    """With how many of torch's threads this model decodes fastest, by its quickest step with each."""
    return min(range(1, THREADS_MAX + 1), key=functools.partial(_quickest_step_s, model))


def _quickest_step_s(model: Any, threads: int) -> float:
    torch.set_num_threads(threads)
    reader, ids = Reader(model), [1] * TRIED_TOKENS
    times = []
    for _ in range(TRIED_STEPS):
        began_at = time.perf_counter()
        ids.append(reader.next_token(ids))
        times.append(time.perf_counter() - began_at)
    return min(times)
