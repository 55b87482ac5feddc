"""A thousand random batches through the emulated engine: every answer is what a full recompute says.

Sequences grow, park, come back with tokens of others, lose what was fed, are evicted and fed in chunks,
beside each other. Blocks that nobody owns hold NaN.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from python_backend.runner.base import ModelRunner
from python_backend.runner.resuming import Resume, ResumingRunner
from python_backend.runner.trtllm_runner.runner import TrtllmRunner
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from python_backend.runner.trtllm_runner.standard_serving import StandardServing
from python_backend.runner.trtllm_runner.torch_flow import build as build_torch_flow
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row, StepOutput
from tests import reference
from tests.contract.emulated import Build, lay_out, use_emulator
from tests.tiny_models import TinyModel, tiny_model_dir

BATCHES = 1000
TOLERANCE = 1e-5
BLOCK_SIZE = 4
POOL_TOKENS = 160
LENGTH_MAX = 48
ROWS_MAX = 6
WORDS = range(2, 97)
FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass
class Text:
    """One sequence as a scheduler would keep it."""

    tokens: list[int]
    prompt_len: int
    cached: int = 0
    blocks: list[int] = field(default_factory=list)


class World:
    """Random sequences over one runner; frees and poisons as the block manager frees."""

    def __init__(self, seed: int, pool: torch.Tensor) -> None:
        self.rng = random.Random(seed)
        self.pool = pool
        pool.fill_(torch.nan)
        self.free = list(range(POOL_TOKENS // BLOCK_SIZE))
        self.texts: list[Text] = []

    def batch(self) -> list[tuple[Text, Row]]:
        """Some of the sequences, each with what it has to feed or a chunk of it."""
        while len(self.free) * BLOCK_SIZE < LENGTH_MAX:
            self._release(max(self.texts, key=lambda text: len(text.blocks)))
        while len(self.texts) < ROWS_MAX:
            prompt = self.rng.choices(WORDS, k=self.rng.randint(1, 20))
            self.texts.append(Text(prompt, len(prompt)))
        chosen = self.rng.sample(self.texts, self.rng.randint(1, ROWS_MAX))
        return [(text, row) for text in chosen if (row := self._row(text)) is not None]

    def after(self, text: Text, row: Row) -> None:
        """The row was run: what happens to its sequence before it is seen again."""
        text.cached = row.end
        fate = self.rng.random()
        if fate < 0.2:  # its last tokens are given up, the cache that held them is written again
            text.tokens = text.tokens[: max(1, len(text.tokens) - self.rng.randint(1, 3))]
            text.cached = min(text.cached, len(text.tokens) - 1)
        elif fate < 0.3:
            self._release(text)
        if len(text.tokens) == text.cached:  # one token of its own, or several of a peer's
            text.tokens += self.rng.choices(WORDS, k=self.rng.choice((1, 1, 1, 2, 3, 7)))
        if len(text.tokens) > LENGTH_MAX:
            self._release(text)
            self.texts.remove(text)

    def _row(self, text: Text) -> Row | None:
        left = len(text.tokens) - text.cached
        count = left if self.rng.random() < 0.8 else self.rng.randint(1, left)
        end = text.cached + count
        while len(text.blocks) * BLOCK_SIZE < end:
            if not self.free:
                return None
            text.blocks.append(self.free.pop(self.rng.randrange(len(self.free))))
        fed = text.tokens[text.cached : end]
        is_last = end == len(text.tokens)
        return Row(
            RequestId("r"),
            fed,
            text.cached,
            text.blocks,
            is_last,
            Sampling(),
            0,
            text.tokens,
            text.prompt_len,
        )

    def _release(self, text: Text) -> None:
        self.pool[text.blocks] = torch.nan
        self.free += text.blocks
        text.blocks, text.cached = [], 0


@pytest.fixture(autouse=True)
def emulator() -> Iterator[None]:
    with use_emulator():
        yield


def folder_of(family: str, tmp_path: Path) -> Path:
    return lay_out(tmp_path / family, tiny_model_dir(TinyModel(family, seed=3)), Build(is_tapped=True))


def settings(folder: Path, resume: Resume = Resume.MID_BLOCK) -> TrtllmSettings:
    return TrtllmSettings(
        folder / "engine",
        folder,
        kv_tokens=POOL_TOKENS,
        batch_max=ROWS_MAX,
        batch_tokens_max=200,
        resume=resume,
    )


def full_recompute(network: Any, texts: list[Text]) -> torch.Tensor:
    """[texts, V] after each whole text; what stands behind a shorter one is not seen from its end."""
    ends = torch.tensor([len(text.tokens) - 1 for text in texts])
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(text.tokens) for text in texts], batch_first=True)
    with torch.inference_mode():
        logits: torch.Tensor = network(padded).logits
    return logits[torch.arange(len(texts)), ends]


@pytest.mark.parametrize(
    ("family", "resume", "batches"),
    [
        *((family, Resume.MID_BLOCK, -(-BATCHES // len(FAMILIES))) for family in FAMILIES),
        ("qwen3", Resume.ALIGN, 100),
        ("qwen3", Resume.ONE_BY_ONE, 100),
    ],
)
def test_random_batches_equal_a_full_recompute(
    family: str, resume: Resume, batches: int, tmp_path: Path
) -> None:
    network = reference.load(tiny_model_dir(TinyModel(family, seed=3)), torch.float64)
    inner = TrtllmRunner(settings(folder_of(family, tmp_path)))
    runner = inner if resume is Resume.MID_BLOCK else ResumingRunner(inner, resume)
    compare(runner, World(len(family), inner.engine.pool), network, batches)


@pytest.mark.parametrize(("resume", "batches"), [(Resume.MID_BLOCK, 200), (Resume.ONE_BY_ONE, 60)])
def test_so_do_those_of_the_pytorch_flow(resume: Resume, batches: int, tmp_path: Path) -> None:
    """Its manager hands out blocks in an order of its own; they hold NaN until they are written."""
    network = reference.load(tiny_model_dir(TinyModel("qwen3", seed=3)), torch.float64)
    chosen = replace(settings(folder_of("qwen3", tmp_path), resume), block_size=BLOCK_SIZE, length_max=100)
    runner = build_torch_flow(chosen)
    compare(runner, World(2, torch.zeros(POOL_TOKENS)), network, batches)
    runner.close()


def test_so_do_those_of_standard_serving(tmp_path: Path) -> None:
    network = reference.load(tiny_model_dir(TinyModel("qwen3", seed=3)), torch.float64)
    chosen = replace(settings(folder_of("qwen3", tmp_path)), block_size=BLOCK_SIZE, length_max=100)
    runner = StandardServing(chosen)
    compared = compare(runner, World(3, torch.zeros(POOL_TOKENS)), network, 40)
    assert runner._llm.requests == compared, "one request per token"


def compare(runner: ModelRunner, world: World, network: Any, batches: int) -> int:
    """Run that many batches; how many answers were compared."""
    needs, compared = Needs(topk=runner.info.vocab_size), 0
    for step in range(batches):
        batch = world.batch()
        output = runner.execute(BatchPlan(step, tuple(row for _, row in batch), needs, LaunchReason.DRAIN))
        compared += check(output, [text for text, row in batch if row.is_sampling], network)
        for text, row in batch:
            world.after(text, row)
    assert compared > batches
    return compared


def check(output: StepOutput, texts: list[Text], network: torch.nn.Module) -> int:
    if not texts:
        assert len(output.tokens) == 0
        return 0
    assert output.topk_ids is not None and output.topk_logits is not None
    expected = full_recompute(network, texts).gather(1, torch.from_numpy(output.topk_ids))
    assert (torch.from_numpy(output.topk_logits) - expected).abs().max() < TOLERANCE, texts
    return len(texts)
