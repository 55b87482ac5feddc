"""The loop of published research code: transformers, every request by itself, both caches kept.

Requests take turns token by token in one thread that owns both models; nothing is ever batched. A model that
is called catches up on what the other one wrote in one forward pass, so nothing is computed twice either.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from tools.peers.pair import Pair
from tools.peers.workload import Question

THREADS = 2


@dataclass(slots=True)
class _Reader:
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


class ResearchLoop:
    """Both models in this process."""

    def __init__(self, pair: Pair) -> None:
        torch.set_num_threads(THREADS)
        self._small, self._large = (_loaded(folder) for folder in pair.folders.values())
        self._turns = ThreadPoolExecutor(1)

    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    def close(self) -> None:
        self._turns.shutdown(cancel_futures=True)

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        small, large = _Reader(self._small), _Reader(self._large)
        coins, ids = question.coins(), list(question.ids)
        for _ in range(question.output_tokens):
            token = await self._turn(small, ids)
            is_large = coins.random() < question.route_probability
            if is_large:
                token = await self._turn(large, ids)
            ids.append(token)
            yield 1, int(is_large)

    async def _turn(self, reader: _Reader, ids: list[int]) -> int:
        return await asyncio.get_running_loop().run_in_executor(self._turns, reader.next_token, list(ids))


def _loaded(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
