"""Requests between two engines in four modes: one thread, one step per model at a time."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tools.gpu.decoder import LENGTH_MAX, Engine

ROUTE_PROBABILITY = 0.35
PROMPT = 64
MODES = ("step_sync", "model_sync", "eager_async", "delayed")


@dataclass
class Request:
    """Its text, how much of it each model's cache holds, and its coin."""

    slot: int
    coins: random.Random
    text: list[int]
    cached: list[int] = field(default_factory=lambda: [0, 0])

    def unseen(self, model: int) -> list[tuple[int, int, int]]:
        begin = self.cached[model]
        return [(self.slot, token, begin + at) for at, token in enumerate(self.text[begin:])]


class Router:
    """Requests in a closed loop over two engines; a text that is full begins anew."""

    def __init__(
        self, engines: Sequence[Engine], concurrency: int, mode: str, thresholds: Sequence[int]
    ) -> None:
        self.engines, self.mode, self.thresholds = engines, mode, thresholds
        self.waiting: list[deque[Request]] = [deque(), deque()]
        self.running: list[list[Request] | None] = [None, None]
        self.committed = [0, 0]
        self.steps, self.rows = [0, 0], [0, 0]
        vocab = engines[0].decoder.shape.vocab
        for slot in range(concurrency):
            coins = random.Random(slot)
            text = [coins.randrange(vocab) for _ in range(PROMPT)]
            self.waiting[0].append(Request(slot, coins, text))

    def run(self, seconds: float) -> float:
        """Committed tokens per second; what is still running at the end is waited for and not counted."""
        self.committed = [0, 0]
        began_at = time.perf_counter()
        while (elapsed := time.perf_counter() - began_at) < seconds:
            self.turn()
        rate = sum(self.committed) / elapsed
        while any(self.running):
            self._collect()
        return rate

    def turn(self) -> None:
        self._collect()
        for model in (0, 1):
            if self.waiting[model] and self.running[model] is None and self._may_start(model):
                self._start(model)

    def _may_start(self, model: int) -> bool:
        is_other_running = self.running[1 - model] is not None
        if self.mode == "step_sync":
            # Round by round: the small model, then the large one for whoever left, then everybody again.
            return not is_other_running and (model == 1 or not self.waiting[1])
        if self.mode == "model_sync":
            # One model at a time, as long as it has anybody; the other one waits for all.
            return not is_other_running and not (model == 1 and self.waiting[0])
        is_alone = self.running[1 - model] is None and not self.waiting[1 - model]
        return len(self.waiting[model]) >= self.thresholds[model] or is_alone

    def _start(self, model: int) -> None:
        batch = list(self.waiting[model])
        self.waiting[model].clear()
        rows = [row for request in batch for row in request.unseen(model)]
        self.engines[model].launch(rows)
        self.running[model] = batch
        self.steps[model] += 1
        self.rows[model] += len(batch)

    def _collect(self) -> None:
        for model, engine in enumerate(self.engines):
            batch = self.running[model]
            if batch is None or not engine.is_done():
                continue
            self.running[model] = None
            tokens, end = engine.tokens(), 0
            for request in batch:
                end += len(request.text) - request.cached[model]
                request.cached[model] = len(request.text)
                self._route(request, model, tokens[end - 1])

    def _route(self, request: Request, model: int, token: int) -> None:
        if model == 0 and request.coins.random() < ROUTE_PROBABILITY:
            self.waiting[1].append(request)
            return
        self.committed[model] += 1
        request.text.append(token)
        if len(request.text) >= LENGTH_MAX:
            request.text = request.text[:PROMPT]
            request.cached = [min(length, PROMPT - 1) for length in request.cached]
        self.waiting[0].append(request)
