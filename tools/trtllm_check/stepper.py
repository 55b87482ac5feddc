"""Drives a runner one step at a time with sequences kept by hand: no scheduler stands between.

Owns the blocks. Invariant: no two texts share a block, and a text's blocks are not in rising order, so that a
runner that confuses numbers and places cannot pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from python_backend.runner.base import ModelRunner
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import (
    BatchPlan,
    FloatArray,
    IntArray,
    LaunchReason,
    Needs,
    Row,
    StepOutput,
)

GREEDY = Sampling(temperature=0.0)
LEADERS = 8
"""How many of the largest logits are compared."""
SEED = 7
NO_IDS = np.empty(0, np.int64)
NO_LOGITS = np.empty(0, np.float32)


COMPARED = Needs(topk=LEADERS)


@dataclass(slots=True)
class Text:
    """One sequence: its tokens, how many of them are in the cache, and where."""

    tokens: list[int]
    prompt_len: int
    cached: int = 0
    blocks: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a runner said behind the last token of `text`."""

    text: tuple[int, ...]
    token: int
    ids: IntArray
    logits: FloatArray
    """The largest, sorted downwards."""
    hidden: FloatArray | None = None


class Stepper:
    """Reads with every token what `needs` asks for."""

    def __init__(self, runner: ModelRunner, needs: Needs = COMPARED) -> None:
        self.runner = runner
        self.info = runner.info
        self._needs = needs
        self._texts: list[Text] = []
        self._free = list(np.random.default_rng(SEED).permutation(runner.info.num_blocks))
        self._steps = 0

    @property
    def num_free(self) -> int:
        """Blocks that belong to no text."""
        return len(self._free)

    def text(self, tokens: Sequence[int]) -> Text:
        self._texts.append(Text(list(tokens), len(tokens)))
        return self._texts[-1]

    def step(self, *shares: tuple[Text, int]) -> list[Reading]:
        """Feed so many tokens of each text in one step; a reading of each that is then complete."""
        rows = tuple(self._row(text, count) for text, count in shares)
        output = self.runner.execute(BatchPlan(self._steps, rows, self._needs, LaunchReason.ALONE))
        self._steps += 1
        for (text, _), row in zip(shares, rows, strict=True):
            text.cached = row.end
        complete = [text for (text, _), row in zip(shares, rows, strict=True) if row.is_sampling]
        return [_reading(text, output, place) for place, text in enumerate(complete)]

    def fed(self, *texts: Text) -> list[Reading]:
        """Everything that each text has not fed yet, in one step."""
        return self.step(*((text, len(text.tokens) - text.cached) for text in texts))

    def release(self, text: Text) -> None:
        """Forget what was computed; the blocks go back."""
        self._free += text.blocks
        text.blocks, text.cached = [], 0

    def clear(self) -> None:
        """Release every text."""
        for text in self._texts:
            self.release(text)
        self._texts = []

    def recomputed(self, tokens: tuple[int, ...]) -> Reading:
        """The same text in one go and in other blocks."""
        text = self.text(tokens)
        (reading,) = self.fed(text)
        self.release(text)
        return reading

    def _row(self, text: Text, count: int) -> Row:
        end = text.cached + count
        while len(text.blocks) * self.info.block_size < end:
            text.blocks.append(int(self._free.pop(0)))
        return Row(
            RequestId("check"),
            text.tokens[text.cached : end],
            text.cached,
            text.blocks,
            end == len(text.tokens),
            GREEDY,
            0,
            text.tokens,
            text.prompt_len,
        )


def _reading(text: Text, output: StepOutput, place: int) -> Reading:
    ids, logits, hidden = output.topk_ids, output.topk_logits, output.hidden
    return Reading(
        tuple(text.tokens),
        int(output.tokens[place]),
        NO_IDS if ids is None else ids[place],
        NO_LOGITS if logits is None else logits[place],
        None if hidden is None else np.asarray(hidden[place], np.float32),
    )
