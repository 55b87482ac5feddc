"""What every routing algorithm must answer: one request at a time, in plain Python.

Written from the published definitions and from nothing else: no batches, no messages, no import of
this project. A scripted `Writer` stands for a model: its next token and all its signals are a function
of the whole text so far, so one wrong, missing or doubled token anywhere changes all that follows.
Rules kept: a discarded token leaves no trace, an answer ends on committed tokens only, a signal that is
no number stays on the small model and returns from the large one.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

VOCAB = 100
END = 99
HEADS = ("citer", "co_llm", "r2r")
NAN = float("nan")

WORD = 2**64 - 1
RANDOM_TAG = 11
AUTHOR_TAG = 12
FEATURE_TAG = 13


class Reading(NamedTuple):
    """One step of a model; signals are multiples of 1/256, so that no rounding can decide."""

    token: int
    entropy: float
    max_prob: float
    scores: dict[str, float]
    logprob: float = 0.0


@dataclass(frozen=True)
class Writer:
    """A model: `ends` of 256 texts are followed by the end token, `sick` of 256 give no signal, and after
    `shared` of 256 all models write the same."""

    model: int
    ends: int = 3
    sick: int = 2
    shared: int = 0

    def read(self, text: Sequence[int]) -> Reading:
        data = array("i", text).tobytes()
        token, end, health, entropy, max_prob, logprob, *scores = blake2b(
            data, digest_size=9, salt=b"%d" % self.model
        ).digest()
        common, agreed = blake2b(data, digest_size=2).digest()
        if common < self.shared:
            token = agreed
        if health < self.sick:
            entropy = max_prob = logprob = NAN
            scores = [NAN] * len(HEADS)
        return Reading(
            END if end < self.ends else token % END,
            entropy / 64,
            max_prob / 256,
            {head: score / 256 for head, score in zip(HEADS, scores, strict=True)},
            -logprob / 128,
        )

    def nll(self, text: Sequence[int], token: int) -> float:
        """-ln p of `token` after `text`."""
        data = array("i", [*text, token]).tobytes()
        value, health = blake2b(data, digest_size=2, salt=b"%d" % self.model, person=b"nll").digest()
        return NAN if health < self.sick else value / 32


@dataclass
class Answer:
    """The text of one request and how it came about."""

    prompt: tuple[int, ...]
    max_tokens: int
    seed: int = 0
    tokens: list[int] = field(default_factory=list)
    authors: list[int] = field(default_factory=list)
    discarded: int = 0
    forced_keeps: int = 0
    ends: frozenset[int] = frozenset({END})

    @property
    def text(self) -> list[int]:
        return [*self.prompt, *self.tokens]

    @property
    def is_over(self) -> bool:
        return len(self.tokens) == self.max_tokens or self.reason == "stop"

    @property
    def reason(self) -> str:
        return "stop" if self.tokens and self.tokens[-1] in self.ends else "length"

    def ahead(self, tokens: Sequence[int] = ()) -> Answer:
        """The same request with an answer of its own that begins with `tokens`."""
        started = list(tokens), [0] * len(tokens)
        return Answer(self.prompt, self.max_tokens, self.seed, *started, ends=self.ends)

    def write(self, token: int, author: int) -> None:
        assert not self.is_over
        self.tokens.append(token)
        self.authors.append(author)


Writers = Sequence[Writer]
Rule = Callable[[Writers, Answer], None]


def alone(model: int) -> Rule:
    """One model writes everything."""

    def follow(writers: Writers, answer: Answer) -> None:
        while not answer.is_over:
            answer.write(writers[model].read(answer.text).token, model)

    return follow


def one_token(fires: Callable[[Reading, Answer], bool], k: int = 1, large: int = 1) -> Rule:
    """CITER, R2R, Co-LLM and their like: where it fires, the large model writes the next k tokens."""

    def follow(writers: Writers, answer: Answer) -> None:
        while not answer.is_over:
            reading = writers[0].read(answer.text)
            if not fires(reading, answer):
                answer.write(reading.token, 0)
                continue
            answer.discarded += 1
            for _ in range(k):
                if not answer.is_over:
                    answer.write(writers[large].read(answer.text).token, large)

    return follow


def citer(cutoff: float, k: int = 1) -> Rule:
    return one_token(lambda reading, _: reading.scores["citer"] < cutoff, k)


def r2r(cutoff: float, large: int = 1) -> Rule:
    return one_token(lambda reading, _: reading.scores["r2r"] >= cutoff, large=large)


def entropy(cutoff: float, unit_in_nats: float = 1.0) -> Rule:
    return one_token(lambda reading, _: reading.entropy >= cutoff * unit_in_nats)


def every(k: int) -> Rule:
    return one_token(lambda _, answer: (len(answer.tokens) + 1) % k == 0)


def co_llm(cutoff: float, warmup: str = "constant", steps: int = 15) -> Rule:
    """Eta falls from 1 to the cutoff over the first steps of the answer."""

    def eta(step: int) -> float:
        if warmup == "constant" or step >= steps:
            return cutoff
        if warmup == "linear":
            return 1.0 + (cutoff - 1.0) * step / steps
        if warmup == "cosine":
            return cutoff + (1.0 - cutoff) / 2 * (math.cos(math.pi * step / steps) + 1)
        return float(cutoff ** (step / steps))

    return one_token(lambda reading, answer: reading.scores["co_llm"] > float32(eta(len(answer.tokens))))


def random(p: float) -> Rule:
    def fires(_: Reading, answer: Answer) -> bool:
        return uniform(answer.seed, len(answer.text), 0, 0, RANDOM_TAG) < p

    return one_token(fires)


def r_stitch(cutoff: float, vocab: int = VOCAB) -> Rule:
    """`cutoff` is a share of ln V."""

    def is_high(reading: Reading) -> bool:
        return reading.entropy > cutoff * math.log(vocab)

    return two_sided(is_high, lambda reading: not is_high(reading))


def max_prob(cutoff: float) -> Rule:
    return two_sided(
        lambda reading: reading.max_prob < cutoff,
        lambda reading: math.isnan(reading.max_prob) or reading.max_prob >= cutoff,
    )


def two_sided(leaves: Callable[[Reading], bool], returns: Callable[[Reading], bool]) -> Rule:
    """The small model is replaced when it leaves; the large one keeps the token with which it returns."""

    def follow(writers: Writers, answer: Answer) -> None:
        writer = 0
        while not answer.is_over:
            reading = writers[writer].read(answer.text)
            if writer == 0 and leaves(reading):
                answer.discarded += 1
                writer = 1
                continue
            answer.write(reading.token, writer)
            if writer == 1 and returns(reading):
                writer = 0

    return follow


@dataclass(frozen=True)
class Rolling:
    """Mean of the last entropies read since this model took over, with hysteresis and bounded stays."""

    cutoff: float
    return_cutoff: float
    window: int = 3
    min_stay: int = 1
    max_stay: int = 10**9

    def __call__(self, writers: Writers, answer: Answer) -> None:
        while not answer.is_over:
            self._stay(writers[0], answer, self._leaves)
            if not answer.is_over:
                self._stay(writers[1], answer, self._returns)

    def _stay(self, writer: Writer, answer: Answer, ends: Callable[[float, int], bool]) -> None:
        readings: list[float] = []
        stay = 0
        while not answer.is_over:
            reading = writer.read(answer.text)
            stay += 1
            is_sick = math.isnan(reading.entropy)
            if not is_sick:
                readings = [*readings, reading.entropy][-self.window :]
            mean = NAN if is_sick else sum(readings) / len(readings)
            if not ends(mean, stay):
                answer.write(reading.token, writer.model)
            elif writer.model == 0:
                answer.discarded += 1
                return
            else:
                answer.write(reading.token, writer.model)
                return

    def _leaves(self, mean: float, stay: int) -> bool:
        return mean > self.cutoff and stay >= self.min_stay

    def _returns(self, mean: float, stay: int) -> bool:
        return (
            math.isnan(mean)
            or stay >= self.max_stay
            or (mean <= self.return_cutoff and stay >= self.min_stay)
        )


def mixture(*weights: float) -> Rule:
    """Each position's author is drawn by weight."""

    def author(answer: Answer) -> int:
        draw = uniform(answer.seed, len(answer.text), AUTHOR_TAG)
        heap = 0.0
        for model, weight in enumerate(weights):
            heap += weight
            if draw < heap:
                return model
        raise AssertionError(f"{draw} is not below {heap}")

    def follow(writers: Writers, answer: Answer) -> None:
        while not answer.is_over:
            model = author(answer)
            answer.write(writers[model].read(answer.text).token, model)

    return follow


def query_level(weights: Sequence[float], bias: float = 0.0, cutoff: float = 0.5) -> Rule:
    """One model writes everything: the large one where a linear model on hashed 1- and 2-grams says so."""

    def follow(writers: Writers, answer: Answer) -> None:
        counts = [0] * len(weights)
        for size in (1, 2):
            for start in range(len(answer.prompt) - size + 1):
                gram = answer.prompt[start : start + size]
                counts[int(uniform(*gram, FEATURE_TAG, size) * len(weights))] += 1
        norm = math.sqrt(sum(count * count for count in counts))
        logit = sum(weight * count / norm for weight, count in zip(weights, counts, strict=True)) + bias
        alone(1 if 1 / (1 + math.exp(-logit)) >= cutoff else 0)(writers, answer)

    return follow


class Livelock(Exception):
    """The same model looks at the same text again: with deterministic models this never ends."""


def literal_stitch(cutoff: float, has_progress_rule: bool) -> Rule:
    """R-Stitch read literally: both models discard the token with which they leave.

    The progress rule: what one model discarded at a position, the other one must not.
    """

    def follow(writers: Writers, answer: Answer) -> None:
        writer, is_second = 0, False
        looked: set[tuple[int, int]] = set()
        while not answer.is_over:
            reading = writers[writer].read(answer.text)
            is_leaving = (reading.entropy > cutoff * math.log(VOCAB)) == (writer == 0)
            if is_leaving and not (is_second and has_progress_rule):
                if (writer, len(answer.tokens)) in looked:
                    raise Livelock(f"model {writer} is at position {len(answer.tokens)} again")
                looked.add((writer, len(answer.tokens)))
                answer.discarded += 1
                writer, is_second = 1 - writer, True
                continue
            answer.write(reading.token, writer)
            if is_leaving:
                answer.forced_keeps += 1
                writer = 1 - writer
            is_second = False

    return follow


def uniform(*keys: int) -> float:
    """splitmix64's finaliser over the keys; [0, 1) with 53 bits."""
    golden = 0x9E3779B97F4A7C15
    state = 0
    for key in keys:
        state = _mixed(((state + golden) & WORD) ^ _mixed((key + golden) & WORD))
    return (state >> 11) * 2.0**-53


def _mixed(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def float32(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])
