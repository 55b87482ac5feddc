"""What every system is asked: the same prompts, lengths and routing rule.

Pure. The default rule is R2R's shape with a coin in place of a signal: after each token of the small model
the request leaves with probability `leave`, the token is discarded, and the large model writes it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FIRST_ID = 3
"""Below are the special tokens of the demo vocabulary."""
SMALL, LARGE = 0, 1
SEED_BITS = 62


@dataclass(frozen=True, slots=True)
class Coins:
    """A routing rule with chances in place of signals, for systems that route outside of ours.

    After a token of the small model the request leaves with probability `leave`, and with `comes_back` it
    returns after one of the large model's. `keeps` says whether the small model's last token before leaving
    is part of the answer: R2R, CITER, Co-LLM and R-Stitch discard it, ME keeps it.
    """

    leave: float
    comes_back: float = 1.0
    keeps: bool = False


@dataclass(slots=True)
class Walk:
    """One answer's way between the models: `writer` writes next."""

    coins: Coins
    random: random.Random
    writer: int = SMALL

    def is_committed(self) -> bool:
        """A token of `writer` is there: whether it counts. `writer` moves on to the next one's."""
        chance = self.coins.comes_back if self.writer == LARGE else self.coins.leave
        moves = chance >= 1.0 or self.random.random() < chance
        counts = self.writer == LARGE or not moves or self.coins.keeps
        self.writer = 1 - self.writer if moves else self.writer
        return counts


@dataclass(frozen=True, slots=True)
class Workload:
    """One cell of the benchmark; `context` are prompt tokens."""

    concurrency: int
    output_tokens: int
    context: int
    coins: Coins = field(default_factory=lambda: Coins(0.35))
    window_s: float = 2.0
    """How long tokens are counted, `windows` times one after another."""
    windows: int = 5
    warm_up_s_max: float = 6.0
    """Counting begins when every client is under way, and then at the latest."""
    is_spread: bool = True
    """Clients begin spread over their answers; otherwise each at the beginning of one."""

    @property
    def seconds(self) -> float:
        """How long it is measured, after the warm-up."""
        return self.window_s * self.windows


@dataclass(frozen=True, slots=True)
class Question:
    ids: tuple[int, ...]
    output_tokens: int
    seed: int
    client: int
    coins: Coins

    def walk(self) -> Walk:
        """The same for every system that routes outside of ours."""
        return Walk(self.coins, random.Random(self.seed))


def question(workload: Workload, client: int, number: int, vocab_size: int) -> Question:
    """The `number`-th that `client` asks; no two prompts share a beginning, so no cache helps across them.

    Number 0 begins in the middle: client k of N asks for the rest of an answer of which (k + 1/2) / N are
    there. So the clients are from the start where they would be after hours, evenly spread over an answer,
    and a short time shows the system at all lengths of text, not only at the beginning.
    """
    begins_inside = number == 0 and workload.is_spread
    age = (2 * client + 1) * workload.output_tokens // (2 * workload.concurrency) if begins_inside else 0
    which = workload.concurrency, workload.output_tokens, workload.context, client, number
    source = random.Random("/".join(map(str, which)))
    seed = source.getrandbits(SEED_BITS)
    ids = source.choices(range(FIRST_ID, vocab_size), k=workload.context + age)
    return Question(tuple(ids), workload.output_tokens - age, seed, client, workload.coins)
