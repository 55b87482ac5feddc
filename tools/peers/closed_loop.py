"""Asks one system one cell's questions, one client each, and notes when tokens arrive.

Every client starts its answer again, with the same question, until one whole round is done by all or the
time is over, so that the concurrency stays what the cell says while it is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tools.peers.workload import Question, Workload


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
    arrivals: list[tuple[float, int, int]] = field(default_factory=list)
    is_whole: bool = False


@dataclass(slots=True)
class Client:
    question: Question
    answers: list[Answer] = field(default_factory=list)


async def drive(system: System, asked: Sequence[Question], workload: Workload) -> list[Client]:
    """What every client saw; whoever fails, fails the cell."""
    clients = [Client(question) for question in asked]
    everybody_done = asyncio.Event()
    tasks = [asyncio.create_task(_serve(system, client, clients, everybody_done)) for client in clients]
    stop = asyncio.create_task(everybody_done.wait())
    await asyncio.wait([stop, *tasks], timeout=workload.seconds_max, return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in tasks if task.done()]
    for task in (stop, *tasks):
        task.cancel()
    await asyncio.gather(stop, *tasks, return_exceptions=True)
    for task in failed:
        task.result()
    return clients


async def _serve(
    system: System, client: Client, clients: Sequence[Client], everybody_done: asyncio.Event
) -> None:
    while True:
        answer = Answer(time.perf_counter())
        client.answers.append(answer)
        async for tokens, large in system.answer(client.question):
            answer.arrivals.append((time.perf_counter(), tokens, large))
        answer.is_whole = True
        if all(one.answers and one.answers[0].is_whole for one in clients):
            everybody_done.set()
