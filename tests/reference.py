"""What the router must say: a plain sequential reference, one request at a time, on transformers alone.

It knows nothing of batches, blocks, queues or processes, and imports nothing of this project: a text
that equals this one was not changed by any of them. Routing rules: R-Stitch (arXiv:2507.17307) and
the fixed extremes, under the rules R1-R5: a discarded token leaves no trace, ends of text count on
committed tokens only, and of two models the second always keeps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

SMALL, LARGE = 0, 1


def load(model_dir: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=dtype, local_files_only=True, attn_implementation="eager"
    )
    return model.eval()


@dataclass
class Answer:
    """Committed tokens and who wrote each; `reason` is stop or length."""

    tokens: list[int] = field(default_factory=list)
    authors: list[int] = field(default_factory=list)
    discards: int = 0
    handoffs: int = 0
    reason: str = "length"


class Reader:
    """One model's view of one text: greedy next token and its entropy."""

    def __init__(self, model: PreTrainedModel, vocab_size: int | None = None) -> None:
        self.model = model
        self.vocab_size = vocab_size or model.config.vocab_size
        self._cache = DynamicCache(config=model.config)
        self._read = 0

    @torch.inference_mode()
    def logits(self, text: Sequence[int]) -> torch.Tensor:
        """[vocab] after `text`, which extends what was read before."""
        unread = torch.tensor([list(text[self._read :])])
        output: Any = self.model(unread, cache=self._cache, use_cache=True)
        self._read = len(text)
        logits: torch.Tensor = output.logits[0, -1, : self.vocab_size]
        return logits

    def choice(self, logits: torch.Tensor, text: Sequence[int]) -> int:
        """The token after `text`."""
        return int(logits.argmax())


def entropy_nats(logits: torch.Tensor) -> float:
    logp = torch.log_softmax(logits.double(), dim=-1)
    return float(-(logp.exp() * logp).nan_to_num(0.0).sum())


def generate(
    model: PreTrainedModel,
    prompt_ids: Sequence[int],
    max_tokens: int,
    eos_ids: Collection[int] = (),
    vocab_size: int | None = None,
) -> Answer:
    """Greedy answer of one model; an end token is committed and ends it."""
    reader, answer, text = Reader(model, vocab_size), Answer(), list(prompt_ids)
    while len(answer.tokens) < max_tokens:
        token = int(reader.logits(text).argmax())
        text.append(token)
        answer.tokens.append(token)
        answer.authors.append(SMALL)
        if token in eos_ids:
            answer.reason = "stop"
            break
    return answer


@dataclass(frozen=True)
class Rule:
    """When control moves. `cutoff` bounds H / ln V; the extremes never and always route.

    `stay` is how many tokens the large model writes per visit under "always"; None = to the end.
    """

    name: str = "r_stitch"
    cutoff: float = 0.0
    stay: int | None = 1
    entry: int = SMALL

    def leaves_small(self, uncertainty: float) -> bool:
        return self.name == "always" or (self.name == "r_stitch" and uncertainty > self.cutoff)

    def leaves_large(self, uncertainty: float, written: int) -> bool:
        if self.name == "r_stitch":
            return uncertainty <= self.cutoff
        return self.name == "always" and self.stay is not None and written >= self.stay


def generate_routed(
    readers: tuple[Reader, Reader],
    prompt_ids: Sequence[int],
    max_tokens: int,
    eos_ids: Collection[int],
    rule: Rule,
) -> Answer:
    """Greedy answer of two fresh readers (small, large) under `rule`.

    The small model's token is discarded when it leaves and the large one writes that position; the
    large one keeps its token and hands back when its own says so. Nothing moves after the end.
    """
    answer, text, author, written = Answer(), list(prompt_ids), rule.entry, 0
    scale = math.log(readers[SMALL].vocab_size)
    while True:
        logits = readers[author].logits(text)
        uncertainty = entropy_nats(logits) / scale
        if author == SMALL and rule.leaves_small(uncertainty):
            answer.discards += 1
            answer.handoffs += 1
            author, written = LARGE, 0
            continue
        text.append(readers[author].choice(logits, text))
        answer.tokens.append(text[-1])
        answer.authors.append(author)
        written += 1
        if text[-1] in eos_ids:
            answer.reason = "stop"
            return answer
        if len(answer.tokens) == max_tokens:
            return answer
        if author == LARGE and rule.leaves_large(uncertainty, written):
            answer.handoffs += 1
            author = SMALL
