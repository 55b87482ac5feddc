"""What policies that hold tokens back must answer, as `tests.oracle`: plain Python, one request at a time.

A level of a cascade, or a draft, is written ahead and nobody sees it; what is not kept of it counts as
discarded. A model that verifies a draft writes one token of its own in the same step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.oracle import Answer, Rule, Writer, Writers


def cascade(cutoff: float) -> Rule:
    """Every model answers from scratch until one is sure enough, or is the last."""

    def follow(writers: Writers, answer: Answer) -> None:
        for level, writer in enumerate(writers):
            attempt = answer.ahead()
            logprobs: list[float] = []
            while not attempt.is_over:
                reading = writer.read(attempt.text)
                attempt.write(reading.token, level)
                logprobs += [] if math.isnan(reading.logprob) else [reading.logprob]
            is_unsure = bool(logprobs) and math.exp(sum(logprobs) / len(logprobs)) < cutoff
            if level == len(writers) - 1 or not is_unsure:
                answer.tokens, answer.authors = attempt.tokens, attempt.authors
                return
            answer.discarded += len(attempt.tokens)

    return follow


@dataclass(frozen=True)
class Drafted:
    """The small model writes up to k tokens ahead, the large one keeps a beginning and writes the next."""

    k: int
    keeps: Callable[[Writer, Sequence[int], int], bool]
    cutoff: float = 0.0
    is_large_first: bool = False

    def __call__(self, writers: Writers, answer: Answer) -> None:
        small, large = writers[:2]
        if self.is_large_first:
            answer.write(large.read(answer.text).token, 1)
        while not answer.is_over:
            draft = self._draft(small, answer)
            for place, token in enumerate(draft):
                if not self.keeps(large, answer.text, token):
                    answer.discarded += len(draft) - place
                    break
                answer.write(token, 0)
            if answer.is_over:  # the large model has read the end and written on
                answer.discarded += 1
            else:
                answer.write(large.read(answer.text).token, 1)

    def _draft(self, small: Writer, answer: Answer) -> list[int]:
        ahead = answer.ahead(answer.tokens)
        while len(ahead.tokens) < len(answer.tokens) + self.k and not ahead.is_over:
            reading = small.read(ahead.text)
            if reading.max_prob < self.cutoff:
                answer.discarded += 1
                break
            ahead.write(reading.token, 0)
        return ahead.tokens[len(answer.tokens) :]


def speculative(k: int) -> Rule:
    return Drafted(k, lambda large, text, token: large.read(text).token == token)


def bild(cutoff: float, rollback: float, k: int) -> Rule:
    return Drafted(k, lambda large, text, token: not large.nll(text, token) > rollback, cutoff, True)
