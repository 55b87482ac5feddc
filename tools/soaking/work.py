"""What the soak asks: a seeded stream of requests over a fixed set of questions.

Pure: the request of a number is always the same for a seed, so a finding can be asked again by itself.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

DOORS = ("token_router", "ensemble")
MAX_TOKENS = 200
WORDS_MAX = 1500
"""Of a long prompt; a word is a token of the demo pair."""
CUTOFFS = (0.05, 0.2)
CANCEL_P = 0.2


class Way(Enum):
    """How a client asks."""

    HTTP_STREAM = "http stream"
    HTTP_WHOLE = "http whole"
    GRPC_STREAM = "grpc stream"


@dataclass(frozen=True, slots=True)
class Question:
    """Greedy, under R-Stitch with a fixed cutoff, on beyond the end token: its answer is always the same."""

    prompt: str
    max_tokens: int
    cutoff: float

    def tensors(self) -> dict[str, str | int | bool]:
        """The inputs of either door, but for `stream`."""
        return {
            "text_input": self.prompt,
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
            "routing_algorithm": "r_stitch",
            "routing_config": json.dumps({"cutoff": self.cutoff}),
            "return_finish_reason": True,
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `leave_after`: the client goes away after this part of the time that the answer took when
    nothing else ran; None = it stays."""

    number: int
    question: int
    door: str
    way: Way
    leave_after: float | None


def demo_prompts(path: Path) -> tuple[str, ...]:
    return tuple(str(one["prompt"]) for one in json.loads(path.read_text()))


def questions(prompts: Sequence[str], count: int, seed: int) -> tuple[Question, ...]:
    """Every other one is a prompt of the demo task as it is; the rest are many of them in a row."""
    rng = random.Random(f"questions {seed}")
    return tuple(
        Question(
            rng.choice(prompts) if number % 2 == 0 else _long(prompts, rng),
            round(math.exp(rng.uniform(0.0, math.log(MAX_TOKENS)))),
            CUTOFFS[number // 2 % len(CUTOFFS)],
        )
        for number in range(count)
    )


def _long(prompts: Sequence[str], rng: random.Random) -> str:
    wanted = rng.randint(50, WORDS_MAX)
    words: list[str] = []
    while len(words) < wanted:
        words += rng.choice(prompts).split(" ")
    return " ".join(words[:wanted])


def asked(number: int, count: int, seed: int) -> Asked:
    """The request of this number, about one of `count` questions."""
    rng = random.Random(f"request {seed} {number}")
    question, door, way = rng.randrange(count), rng.choice(DOORS), rng.choice(list(Way))
    leave_after = rng.random() if rng.random() < CANCEL_P else None
    return Asked(number, question, door, way, leave_after)
