"""The loop of published research code: transformers, every request by itself, both caches kept.

Requests take turns token by token in one thread that owns both models; nothing is ever batched. A model that
is called catches up on what the other one wrote in one forward pass, so nothing is computed twice either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tools.peers.in_process import PairInProcess, Reader
from tools.peers.workload import Question


class ResearchLoop(PairInProcess):
    """Every request keeps a cache of either model."""

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        readers = Reader(self.small), Reader(self.large)
        walk, ids, left = question.walk(), list(question.ids), question.output_tokens
        while left:
            writer = walk.writer
            token = await self._turn(readers[writer], ids)
            if walk.is_committed():
                ids.append(token)
                left -= 1
                yield 1, writer

    async def _turn(self, reader: Reader, ids: list[int]) -> int:
        return await asyncio.get_running_loop().run_in_executor(self.turns, reader.next_token, list(ids))
