"""Speculative decoding as transformers offers it: the small model drafts, the large one checks.

One request at a time in one thread: transformers drafts for a single sequence only. What it writes is the
large model's greedy text, so every committed token counts as the large one's.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from tools.peers.in_process import PairInProcess
from tools.peers.workload import Question


class _Stopped(Exception):
    """Nobody waits for the rest of an answer."""


class _Arrivals(BaseStreamer):
    """Hands the number of tokens that generation has written to the loop that waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stopped: threading.Event) -> None:
        self.tokens: asyncio.Queue[int] = asyncio.Queue()
        self._loop = loop
        self._stopped = stopped
        self._is_prompt = True

    def put(self, value: Any) -> None:
        if self._stopped.is_set():
            raise _Stopped
        if not self._is_prompt:
            self._loop.call_soon_threadsafe(self.tokens.put_nowait, int(value.numel()))
        self._is_prompt = False

    def end(self) -> None:
        """The number of tokens is known beforehand."""


class Assisted(PairInProcess):
    """The small model drafts for one request after the other."""

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        loop, stopped = asyncio.get_running_loop(), threading.Event()
        arrivals = _Arrivals(loop, stopped)
        task = loop.run_in_executor(self.turns, self._generate, question, arrivals)
        left = question.output_tokens
        try:
            while left:
                tokens = min(left, await arrivals.tokens.get())
                left -= tokens
                yield tokens, tokens
            await task
        finally:
            stopped.set()

    @torch.inference_mode()
    def _generate(self, question: Question, arrivals: _Arrivals) -> None:
        with contextlib.suppress(_Stopped):
            self.large.generate(
                torch.tensor([question.ids]),
                assistant_model=self.small,
                max_new_tokens=question.output_tokens,
                min_new_tokens=question.output_tokens,
                do_sample=False,
                streamer=arrivals,
            )
