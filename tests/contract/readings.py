"""What real models say to the sequential definitions of `tests.oracle`, on transformers alone.

A reading is a pass over one text. Texts that are probably asked for are read along with others, one pass for
many and for every length at once: a causal model's reading of a text depends on nothing behind it. What
was not guessed right is read by itself. Only speed depends on the guesses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tests.contract import heads
from tests.oracle import Reading
from tests.tiny_models import TinyModel

Text = tuple[int, ...]


@dataclass
class ModelWriter:
    """An `oracle.Writer` with a model inside; `has_heads` where the router heads of a pair run.

    `closest` is how near a head's score has come to one of its `cutoffs` since it was last set: heads run in
    float32 on the system, so what is a hair away could go either way.
    """

    model: int
    source: TinyModel
    vocab: int
    cutoffs: dict[str, float] = field(default_factory=dict)
    closest: float = math.inf
    _known: dict[Text, tuple[Reading, Tensor]] = field(default_factory=dict)

    def read(self, text: Sequence[int]) -> Reading:
        reading = self._of(text)[0]
        for head, cutoff in self.cutoffs.items():
            self.closest = min(self.closest, abs(reading.scores[head] - cutoff))
        return reading

    def nll(self, text: Sequence[int], token: int) -> float:
        """-ln p of `token` after `text`."""
        return -float(self._of(text)[1][token])

    def guess(self, texts: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Forget everything; read each (first, text) at all lengths from `first` on."""
        self._known.clear()
        longest = max(len(text) for _, text in texts)
        batch = torch.tensor([[*text, *[0] * (longest - len(text))] for _, text in texts])
        lines = enumerate(texts)
        self._learn(
            batch, [(line, end) for line, (first, text) in lines for end in range(first, len(text) + 1)]
        )

    def _of(self, text: Sequence[int]) -> tuple[Reading, Tensor]:
        key = tuple(text)
        if key not in self._known:
            self._learn(torch.tensor([key]), [(0, len(key))])
        return self._known[key]

    @torch.inference_mode()
    def _learn(self, texts: Tensor, ends: Iterable[tuple[int, int]]) -> None:
        """Keep the readings of line `line` of `texts` up to `end`, for each (line, end)."""
        places = list(ends)
        seen: Any = heads.network(self.source)(texts, output_hidden_states=bool(self.cutoffs))
        at = (torch.tensor([line for line, _ in places]), torch.tensor([end - 1 for _, end in places]))
        logits = seen.logits[at][:, : self.vocab]
        logp = torch.log_softmax(logits.double(), dim=-1)
        tokens = logits.argmax(dim=-1)
        columns = [
            tokens,
            -(logp.exp() * logp).sum(dim=-1),
            logp.amax(dim=-1).exp(),
            logp.gather(1, tokens[:, None])[:, 0],
        ]
        scores = self._scores(seen.hidden_states[-1][at], tokens, logits) if self.cutoffs else {}
        lines = zip(*(column.tolist() for column in columns), strict=True)
        for row, (token, entropy, most, own) in enumerate(lines):
            line, end = places[row]
            score = {head: float(column[row]) for head, column in scores.items()}
            key = tuple(texts[line, :end].tolist())
            self._known[key] = Reading(token, entropy, most, score, own), logp[row]

    def _scores(self, hidden: Tensor, tokens: Tensor, logits: Tensor) -> dict[str, Tensor]:
        return {
            "citer": heads.confidence(hidden),
            "r2r": heads.divergence(self.source, hidden, tokens, logits),
            "co_llm": heads.deferral(self.source, hidden),
        }
