"""The torch runner against transformers: same tokens, same logits, whatever the batch looks like.

A driver plays the scheduler badly on purpose: chunks of random width, random company, rows that
rest for many steps, blocks in random order. All KV memory starts as NaN and turns NaN again when it
is released, so a read of anything that a row did not write shows at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row, StepOutput
from tests import reference
from tests.tiny_models import LLAMA3_ROPE, TinyModel, frozen, tiny_model_dir

BLOCK_SIZE = 4
MODELS = {
    "llama": TinyModel("llama"),
    "llama3-rope-biased-sharded": TinyModel(
        "llama", 1, shards=3, fields=frozen(rope_parameters=LLAMA3_ROPE, attention_bias=True)
    ),
    "llama-one-kv-head": TinyModel("llama", 2, fields=frozen(num_key_value_heads=1)),
    "qwen2-tied": TinyModel("qwen2", 3, fields=frozen(tie_word_embeddings=True)),
    "qwen2-yarn-rope": TinyModel(
        "qwen2",
        5,
        fields=frozen(
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 8.0,
                "original_max_position_embeddings": 128,
            }
        ),
    ),
    "qwen3-wide-heads-padded-vocabulary": TinyModel(
        "qwen3", 4, words=90, fields=frozen(head_dim=16, num_key_value_heads=4)
    ),
}
FAMILIES = ("llama", "qwen2", "qwen3")
ANSWER = 20
Answers = dict[tuple[int, ...], list[int]]
"""Tokens by prompt."""
every_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())


@dataclass
class Text:
    """A growing text and how much of it the runner has read."""

    tokens: list[int]
    wanted: int
    computed: int = 0
    blocks: list[int] = field(default_factory=list)


class Driver:
    """Plays scheduler and block manager for one runner."""

    def __init__(self, model: TinyModel, dtype: str, seed: int, num_blocks: int = 200) -> None:
        self.rng = random.Random(seed)
        self.evictions = 0
        kv_tokens = num_blocks * BLOCK_SIZE
        self.runner = TorchRunner(
            TorchSettings(tiny_model_dir(model), dtype, kv_tokens=kv_tokens, block_size=BLOCK_SIZE)
        )
        self._free = list(range(num_blocks))
        self.rng.shuffle(self._free)
        self._poison(self._free)

    def prompt(self, longest: int) -> list[int]:
        return [self.rng.randrange(self.runner.info.vocab_size) for _ in range(self.rng.randint(1, longest))]

    def row(self, text: Text, width: int) -> Row:
        end = text.computed + width
        while len(text.blocks) * BLOCK_SIZE < end:
            text.blocks.append(self._free.pop())
        fed = text.tokens[text.computed : end]
        is_sampling = end == len(text.tokens)
        return Row(RequestId("r"), fed, text.computed, list(text.blocks), is_sampling, Sampling(), 0)

    def step(self, rows: Sequence[Row], needs: Needs | None = None) -> StepOutput:
        return self.runner.execute(BatchPlan(0, tuple(rows), needs or Needs(), LaunchReason.ALONE))

    def turn(self, texts: Sequence[Text]) -> None:
        """One step of a random part of `texts`, each by a random chunk; sampled tokens are appended."""
        chosen = self.rng.sample(texts, self.rng.randint(1, len(texts)))
        rows = []
        for text in chosen:
            unread = len(text.tokens) - text.computed
            rows.append(self.row(text, self.rng.choice([unread, self.rng.randint(1, unread)])))
        tokens = iter(self.step(rows).tokens.tolist())
        for text, row in zip(chosen, rows, strict=True):
            text.computed = row.end
            if row.is_sampling:
                text.tokens.append(next(tokens))

    def release(self, text: Text) -> None:
        self._poison(text.blocks)
        self._free += text.blocks
        self.rng.shuffle(self._free)
        text.blocks = []

    def evict(self, text: Text) -> None:
        """It reads everything again."""
        self.evictions += bool(text.computed)
        self.release(text)
        text.computed = 0

    def _poison(self, blocks: Sequence[int]) -> None:
        with torch.inference_mode():
            self.runner.pool.tensor[:, :, torch.tensor(list(blocks), dtype=torch.long)] = math.nan


@every_model
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_greedy_answers_equal_transformers_token_for_token_in_any_company(
    model: TinyModel, dtype: str
) -> None:
    driver = Driver(model, dtype, seed=5)
    prompts = [driver.prompt(40) for _ in range(12)]

    assert answered(driver, prompts) == expected_answers(model, dtype, prompts)


@pytest.mark.parametrize("model", [TinyModel(family, 21) for family in FAMILIES], ids=FAMILIES)
def test_a_hundred_prompts_equal_transformers_whoever_loses_its_cache(model: TinyModel) -> None:
    driver = Driver(model, "float32", seed=22)
    prompts = [driver.prompt(40) for _ in range(100)]

    assert answered(driver, prompts, eviction_p=0.05) == expected_answers(model, "float32", prompts)
    assert driver.evictions > 100


def expected_answers(model: TinyModel, dtype: str, prompts: Sequence[list[int]]) -> Answers:
    oracle = reference.load(tiny_model_dir(model), getattr(torch, dtype))
    return {
        tuple(prompt): reference.generate(oracle, prompt, ANSWER, (), model.words).tokens
        for prompt in prompts
    }


def answered(driver: Driver, prompts: Sequence[list[int]], eviction_p: float = 0.0) -> Answers:
    """Five texts at a time, in random chunks and company; each may lose its cache after any step."""
    waiting = [list(prompt) for prompt in prompts]
    texts: list[Text] = []
    answers: Answers = {}
    while waiting or texts:
        while waiting and len(texts) < 5:
            prompt = waiting.pop()
            texts.append(Text(prompt, len(prompt) + ANSWER))
        driver.turn(texts)
        for text in [text for text in texts if len(text.tokens) == text.wanted]:
            answers[tuple(text.tokens[:-ANSWER])] = text.tokens[-ANSWER:]
            driver.release(text)
            texts.remove(text)
        for text in texts:
            if driver.rng.random() < eviction_p:
                driver.evict(text)
    return answers


@every_model
def test_single_precision_logits_are_within_a_ten_thousandth(model: TinyModel) -> None:
    driver = Driver(model, "float32", seed=6)
    oracle = reference.load(tiny_model_dir(model))
    texts = [Text(prompt, 0) for prompt in (driver.prompt(80) for _ in range(10))]

    output = driver.step([driver.row(text, len(text.tokens)) for text in texts], Needs(topk=97))

    assert output.topk_ids is not None and output.topk_logits is not None
    ours = np.take_along_axis(output.topk_logits, output.topk_ids.argsort(axis=1), axis=1)
    theirs = [reference.Reader(oracle, model.words).logits(text.tokens).numpy() for text in texts]
    np.testing.assert_allclose(ours, np.stack(theirs), rtol=0, atol=1e-4)


@every_model
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_parked_row_resumes_in_the_middle_of_a_block_with_a_peers_tokens(
    model: TinyModel, dtype: str
) -> None:
    driver = Driver(model, dtype, seed=7)
    oracle = reference.load(tiny_model_dir(model), torch.float64)
    parked, other = Text(driver.prompt(13), 0), Text(driver.prompt(30), 0)
    reader = reference.Reader(oracle, model.words)

    for visit in range(12):
        for _ in range(visit % 3):
            driver.turn([other])
        rows = [driver.row(parked, len(parked.tokens) - parked.computed)]
        output = driver.step(rows, Needs(entropy=True, topk=1))
        expected = reader.logits(parked.tokens)
        parked.computed = len(parked.tokens)
        assert output.tokens[0] == int(expected.argmax())
        assert output.entropy is not None
        assert output.entropy[0] == pytest.approx(reference.entropy_nats(expected), abs=1e-5)
        parked.tokens += driver.prompt(9)


def test_a_discarded_token_leaves_no_trace() -> None:
    """A sampled token is not in the cache until it is fed: feeding another one instead is enough."""
    model = MODELS["qwen3-wide-heads-padded-vocabulary"]
    driver = Driver(model, "float64", seed=8)
    oracle = reference.load(tiny_model_dir(model), torch.float64)
    text = Text(driver.prompt(20), 0)
    reader = reference.Reader(oracle, model.words)

    for _ in range(10):
        output = driver.step([driver.row(text, len(text.tokens) - text.computed)])
        logits = reader.logits(text.tokens)
        text.computed = len(text.tokens)
        assert output.tokens[0] == int(logits.argmax())
        text.tokens.append(int(logits.argsort()[-2]))


def test_two_rows_may_read_the_same_blocks() -> None:
    """A prefix hit: the second text starts behind blocks that the first one wrote."""
    driver = Driver(MODELS["llama"], "float64", seed=11)
    oracle = reference.load(tiny_model_dir(MODELS["llama"]), torch.float64)
    prefix = [driver.rng.randrange(97) for _ in range(3 * BLOCK_SIZE)]
    first = Text(prefix + driver.prompt(9), 0)
    driver.step([driver.row(first, len(first.tokens))])
    second = Text(prefix + driver.prompt(9), 0, computed=len(prefix), blocks=first.blocks[:3])
    first.tokens, first.computed = [*first.tokens, 5], len(first.tokens)

    output = driver.step([driver.row(text, len(text.tokens) - text.computed) for text in (first, second)])

    expected = [int(reference.Reader(oracle).logits(text.tokens).argmax()) for text in (first, second)]
    assert output.tokens.tolist() == expected


def test_a_row_gives_the_same_numbers_alone_and_in_company() -> None:
    driver = Driver(MODELS["llama"], "float64", seed=9)
    texts = [Text(driver.prompt(60), 0) for _ in range(8)]
    rows = [driver.row(text, len(text.tokens)) for text in texts]
    needs = Needs(entropy=True, hidden=True)

    together = driver.step(rows, needs)
    alone = [driver.step([row], needs) for row in rows]

    assert together.tokens.tolist() == [int(output.tokens[0]) for output in alone]
    np.testing.assert_allclose(together.entropy, [output.entropy[0] for output in alone], atol=1e-6)
    np.testing.assert_allclose(together.hidden, [output.hidden[0] for output in alone], atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_narrower_weights_stay_close_to_single_precision(dtype: str) -> None:
    single, half = (Driver(MODELS["qwen2-tied"], name, seed=10) for name in ("float32", dtype))
    prompt = single.prompt(30)

    exact, coarse = (
        driver.step([driver.row(Text(prompt, 0), len(prompt))], Needs(entropy=True, hidden=True))
        for driver in (single, half)
    )

    assert coarse.entropy == pytest.approx(exact.entropy, abs=0.2)
    np.testing.assert_allclose(coarse.hidden, exact.hidden, atol=0.3)
