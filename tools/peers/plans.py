"""What `tools.bench_peers` measures: which cells of which systems, and how long that takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tools.peers.workload import Workload

Shape = tuple[int, int, int]
"""Requests at once, tokens of an answer, tokens of a prompt."""
START_S = MappingProxyType({"standard_vllm": 80.0, "standard_llama_cpp": 6.0, "research_loop": 3.0})
START_S_USUAL = 12.0
"""From a system's launch to its first cell, and its end: a Triton server's."""
WARM_UP_S = 1.5
PROMPT_TOKENS_PER_S = 8000.0
"""How fast prompts are read, roughly, until every client is under way."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`systems` of () are all that are compared."""

    systems: tuple[str, ...]
    shapes: tuple[Shape, ...]
    window_s: float = 1.5
    is_spread: bool = True
    warm_up_s_max: float = 6.0


def grid(concurrency: Sequence[int], output: Sequence[int], context: Sequence[int]) -> tuple[Shape, ...]:
    """All of them with all of them, shortest texts first."""
    found = itertools.product(context, output, concurrency)
    return tuple((n, tokens, prompt) for prompt, tokens, n in found)


def lines(concurrency: Sequence[int], output: Sequence[int], context: Sequence[int]) -> tuple[Shape, ...]:
    """One axis at a time, through the second concurrency, the first output and the first context."""
    n, tokens, prompt = concurrency[1], output[0], context[0]
    axes = grid(concurrency, [tokens], [prompt]), grid([n], output, [prompt]), grid([n], [tokens], context)
    return tuple(dict.fromkeys(itertools.chain(*axes)))


PLANS = MappingProxyType(
    {
        "peers": Plan((), grid([1, 4, 8, 16], [128, 512, 2048], [256])),
        "contexts": Plan(
            (
                "delayed",
                "eager_async",
                "standard_ours",
                "standard_vllm",
                "standard_llama_cpp",
                "research_loop",
            ),
            grid([4], [512], [256, 1024, 2048, 4096]),
            warm_up_s_max=15.0,
        ),
        "growth": Plan(
            ("delayed", "eager_async", "standard_ours", "research_loop"),
            lines([1, 4, 8, 16, 32], [128, 512, 2048], [256, 1024, 4096, 8192]),
            warm_up_s_max=20.0,
        ),
        # The first seconds of answers that do not end: no prompt is read while CPU time is counted.
        "cpu": Plan(
            ("eager_async", "thin_attention"), grid([8], [8192], [256, 512, 1024, 2048]), 0.8, False, 40.0
        ),
    }
)


def seconds(cells: Iterable[tuple[str, float]]) -> float:
    """For (system, seconds of the cell) of every cell that is still to do."""
    todo = list(cells)
    starts = sum(START_S.get(system, START_S_USUAL) for system in dict.fromkeys(system for system, _ in todo))
    return starts + sum(spent for _, spent in todo)


def cell_s(workload: Workload) -> float:
    """What one cell takes, reading the prompts included."""
    reading = workload.concurrency * workload.context / PROMPT_TOKENS_PER_S
    return min(WARM_UP_S + reading, workload.warm_up_s_max) + workload.seconds
