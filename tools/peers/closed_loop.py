"""Asks one system one cell's questions, one client each, and notes when tokens arrive.

A closed loop: whoever has its answer asks the next question at once, so the concurrency is what the cell
says all the time. Tokens count in windows of a fixed time, so a system that ends no answer in it has its
throughput too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tools.peers.processes import Usage, since
from tools.peers.workload import Question, Workload

LOOK_S = 0.05
"""How often the warm-up looks whether everybody is under way."""
WARM_TOKENS = 16
"""Of a client, before counting begins: by then every model has read its prompt."""


class System(Protocol):
    """One running system. Its processes are `pids` and their children."""

    def pids(self) -> Sequence[int]: ...

    def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        """(tokens, of which the large model's) as they arrive, `output_tokens` in all."""
        ...


@dataclass(slots=True)
class Answer:
    """When an answer was asked for, when its tokens came (seconds), and whether it is whole."""

    asked_at: float
    is_fresh: bool = True
    """From its first token, not the rest of one that was begun."""
    arrivals: list[tuple[float, int, int]] = field(default_factory=list)
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """A time in which tokens counted, and what the system's processes used in it."""

    began_at: float
    ended_at: float
    usage: Usage


@dataclass(slots=True)
class Watched:
    """All that was seen of one cell."""

    answers: list[Answer] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    tokens: Counter[int] = field(default_factory=Counter)
    """By client, since the beginning."""


@dataclass(frozen=True, slots=True)
class Asker:
    """`ask(client, number)` is the next question, `look` what the system has used so far."""

    system: System
    ask: Callable[[int, int], Question]
    look: Callable[[], Usage]


async def watch(asker: Asker, workload: Workload) -> Watched:
    """Everything up to the end of the last window; a client that fails, fails the cell."""
    seen = Watched()
    tasks = [asyncio.create_task(_serve(asker, client, seen)) for client in range(workload.concurrency)]
    try:
        await _warm_up(tasks, seen, workload)
        for _ in range(workload.windows):
            before, began_at = asker.look(), time.perf_counter()
            await _pause(tasks, workload.window_s)
            seen.windows.append(Window(began_at, time.perf_counter(), since(before, asker.look())))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return seen


async def _serve(asker: Asker, client: int, seen: Watched) -> None:
    number = 0
    while True:
        answer = Answer(time.perf_counter(), is_fresh=number > 0)
        seen.answers.append(answer)
        async for tokens, large in asker.system.answer(asker.ask(client, number)):
            answer.arrivals.append((time.perf_counter(), tokens, large))
            seen.tokens[client] += tokens
        answer.is_whole = True
        number += 1


async def _warm_up(tasks: Sequence[asyncio.Task[None]], seen: Watched, workload: Workload) -> None:
    give_up = time.perf_counter() + workload.warm_up_s_max
    while time.perf_counter() < give_up:
        await _pause(tasks, LOOK_S)
        if all(seen.tokens[client] >= WARM_TOKENS for client in range(workload.concurrency)):
            return


async def _pause(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Clients never end but by an error, which is raised here."""
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()
