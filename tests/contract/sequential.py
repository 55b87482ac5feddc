"""What the sequential reference answers, and what it says about every hand-off on the way.

The rules and the models are `tests.reference` as it is. Here it is only made fast, by reading a guess
of the whole text in one pass (a model's logits depend on nothing but the text before them, and a wrong
guess is read token by token from where it is wrong), and made to leave a trace: which model looked at
which text. From the trace alone follows what each hand-off had to carry.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from tests.reference import LARGE, SMALL, Answer, Reader, Rule, entropy_nats, generate_routed


class Look(NamedTuple):
    """`author` read `length` tokens and sampled; `gap` is how far its first choice stands before its
    second in logits, `entropy` is in nats."""

    author: int
    length: int
    gap: float
    entropy: float


class Carried(NamedTuple):
    """A hand-off: tokens base .. loc - 1 went from `source` to the other model."""

    source: int
    base: int
    loc: int


@dataclass(frozen=True)
class Sequential:
    """One request's reference: `answer` and the looks that led to it."""

    prompt_len: int
    answer: Answer
    looks: list[Look]

    @property
    def handoffs(self) -> list[Carried]:
        """Exactly what the target had not seen, in order; the small model starts with the prompt."""
        carried, seen = [], [self.prompt_len, 0]
        for look, following in pairwise(self.looks):
            if look.author != following.author:
                carried.append(Carried(look.author, seen[following.author], following.length))
                seen = [following.length, following.length]
        return carried

    def is_clear(self, bound: float, cutoff_nats: float) -> bool:
        """No choice of a token or of a model was closer than `bound`: rounding cannot change it."""
        return all(look.gap > bound and abs(look.entropy - cutoff_nats) > bound for look in self.looks)


class GuessedReader(Reader):
    """A `Reader` that reads along `guess` in one pass as long as the text follows it."""

    def __init__(self, model: PreTrainedModel, author: int, guess: Sequence[int], looks: list[Look]) -> None:
        super().__init__(model)
        self._author = author
        self._guess = list(guess)
        self._looks = looks
        self._along: torch.Tensor | None = None

    def logits(self, text: Sequence[int]) -> torch.Tensor:
        follows = list(text) == self._guess[: len(text)]
        logits = self._guessed()[len(text) - 1] if follows else super().logits(text)
        first, second = logits.topk(2).values.tolist()
        self._looks.append(Look(self._author, len(text), first - second, entropy_nats(logits)))
        return logits

    @torch.inference_mode()
    def _guessed(self) -> torch.Tensor:
        if self._along is None:
            self._along = self.model(torch.tensor([self._guess])).logits[0]
        return self._along


@dataclass(frozen=True)
class Referee:
    """The two models of a deployment, and every token that ends an answer on either."""

    models: tuple[PreTrainedModel, PreTrainedModel]
    eos_ids: frozenset[int]

    def answer(
        self, prompt: Sequence[int], max_tokens: int, rule: Rule, guess: Collection[int]
    ) -> Sequential:
        """The reference of one request; `guess` (its answer, perhaps) only saves time."""
        looks: list[Look] = []
        text = [*prompt, *guess]
        small, large = (GuessedReader(self.models[model], model, text, looks) for model in (SMALL, LARGE))
        answer = generate_routed((small, large), prompt, max_tokens, self.eos_ids, rule)
        return Sequential(len(prompt), answer, looks)
