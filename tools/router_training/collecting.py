"""What the small model sees at every token that the large one writes, and whether it would have differed.

Both models read the same text in step: the large one's. Runs on the runners that serve, so hidden states
and logits are those of serving.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from python_backend.runner.base import ModelRunner
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row, StepOutput

Prompt = Sequence[int]


@dataclass(frozen=True, slots=True)
class Samples:
    """N tokens of the large model's answers, as the small model saw them."""

    hidden: Tensor
    """float32[N, H]"""
    tokens: Tensor
    """int64[N]: what the small model would have written."""
    topk_logits: Tensor
    """float32[N, k]: raw, sorted downwards."""
    differs: Tensor
    """bool[N]: the large model wrote something else."""
    prompt: Tensor
    """int64[N]: number of the prompt."""

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, chosen: Tensor) -> Samples:
        columns = (self.hidden, self.tokens, self.topk_logits, self.differs, self.prompt)
        return Samples(*(column[chosen] for column in columns))

    def split(self, held_out: float) -> tuple[Samples, Samples]:
        """(training, held out), whole prompts at a time: the last ones are held out."""
        first = int(self.prompt.max().item() * (1.0 - held_out)) + 1
        return self.take(self.prompt < first), self.take(self.prompt >= first)


class Reader:
    """A runner that reads texts from their beginning on; text i owns blocks of its own."""

    def __init__(self, runner: ModelRunner, texts: int, length_max: int) -> None:
        self._runner = runner
        size = runner.info.block_size
        per_text = -(-length_max // size)
        self._blocks = [list(range(text * per_text, (text + 1) * per_text)) for text in range(texts)]
        self._read = [0] * texts

    def step(self, texts: dict[int, list[int]], needs: Needs) -> StepOutput:
        """One row per text, by its number, in order."""
        rows = []
        for number, text in texts.items():
            start = self._read[number]
            blocks = self._blocks[number]
            rows.append(Row(RequestId(f"{number}"), text[start:], start, blocks, True, Sampling(), 0))
            self._read[number] = len(text)
        return self._runner.execute(BatchPlan(0, tuple(rows), needs, LaunchReason.ALONE))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runners of one vocabulary, and what ends a text."""

    small: ModelRunner
    large: ModelRunner
    eos_ids: Collection[int]
    topk: int


def collected(pair: Pair, prompts: Sequence[Prompt], max_tokens: int) -> Samples:
    """All answers at once: the pools must hold prompts and answers of all of them."""
    length_max = max(map(len, prompts)) + max_tokens
    small, large = (Reader(runner, len(prompts), length_max) for runner in (pair.small, pair.large))
    texts = {number: list(prompt) for number, prompt in enumerate(prompts)}
    needs = Needs(hidden=True, topk=pair.topk)
    steps = []
    for _ in range(max_tokens):
        seen, written = small.step(texts, needs), large.step(texts, Needs()).tokens
        steps.append(_samples(seen, written, list(texts)))
        for (number, text), token in zip(list(texts.items()), written.tolist(), strict=True):
            text.append(token)
            if token in pair.eos_ids:
                del texts[number]
        if not texts:
            break
    return joined(steps)


def joined(parts: Sequence[Samples]) -> Samples:
    columns = ("hidden", "tokens", "topk_logits", "differs", "prompt")
    return Samples(*(torch.cat([getattr(part, name) for part in parts]) for name in columns))


def renumbered(samples: Samples, first: int) -> Samples:
    """The same with prompt numbers that begin at `first`."""
    return replace(samples, prompt=samples.prompt + first)


def _samples(seen: StepOutput, written: npt.NDArray[np.int64], numbers: list[int]) -> Samples:
    assert seen.topk_logits is not None, "topk was asked for"
    tokens = torch.from_numpy(np.array(seen.tokens))
    return Samples(
        torch.from_numpy(np.array(seen.hidden, dtype=np.float32)),
        tokens,
        torch.from_numpy(np.array(seen.topk_logits, dtype=np.float32)),
        tokens != torch.from_numpy(np.array(written)),
        torch.tensor(numbers),
    )
