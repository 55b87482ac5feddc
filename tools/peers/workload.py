"""What every system is asked: the same prompts, lengths and routing rule.

Pure. The rule is R2R's shape with a coin in place of a signal: after each token of the small model the
request leaves with probability `route_probability`, the token is discarded, and the large model writes it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

FIRST_ID = 3
"""Below are the special tokens of the demo vocabulary."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One cell of the benchmark; `context` are prompt tokens."""

    concurrency: int
    output_tokens: int
    context: int
    route_probability: float
    seconds_max: float
    """The cell ends then, finished or not."""


@dataclass(frozen=True, slots=True)
class Question:
    ids: tuple[int, ...]
    output_tokens: int
    seed: int
    client: int
    route_probability: float

    def coins(self) -> random.Random:
        """For systems that route outside of ours."""
        return random.Random(self.seed)


def questions(workload: Workload, vocab_size: int) -> list[Question]:
    """One per client; no two prompts share a beginning, so that no cache helps across requests."""
    return [_question(workload, client, vocab_size) for client in range(workload.concurrency)]


def _question(workload: Workload, client: int, vocab_size: int) -> Question:
    seed = 1 + client + 1000 * workload.context + workload.output_tokens
    ids = random.Random(seed).choices(range(FIRST_ID, vocab_size), k=workload.context)
    return Question(tuple(ids), workload.output_tokens, seed, client, workload.route_probability)
