"""Steps that are replayed from static memory write what transformers writes, by every attention.

A capture that repeats calls stands for CUDA graphs, doubles for the GPU's libraries: what is tested is all
that surrounds them (shapes, padding, tables, masks, what is inside a capture), on the CPU.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from python_backend.runner.torch_runner import table_attention
from python_backend.runner.torch_runner.buckets import Grid
from python_backend.runner.torch_runner.graphs import GraphedSteps
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.errors import ConfigError
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import Needs
from tests import reference
from tests.captured_steps import RepeatedCalls, install
from tests.contract.test_torch_runner_parity import MODELS, Driver, Text
from tests.tiny_models import tiny_model_dir

GRID = Grid((1, 2, 4), (1, 3, 8, 24))
ATTENTIONS = ("sdpa", "flash_attn", "flashinfer")
EVERYTHING = Needs(entropy=True, max_prob=True, topk=5, hidden=True)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_attention, "FLASH_ATTN_BLOCK", 4)
    monkeypatch.setattr(table_attention, "WORKSPACE_BYTES", 64)


def graphed(
    driver: Driver, attention: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[GraphedSteps, RepeatedCalls]:
    if attention != "sdpa":
        install(monkeypatch, attention)
    capture = RepeatedCalls()
    settings = TorchSettings(tiny_model_dir(MODELS["llama"]), attention=attention, grid=GRID)
    return driver.runner.use_graphs(settings, capture), capture


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", ["llama", "qwen3-wide-heads-padded-vocabulary"])
def test_replayed_and_eager_steps_mixed_write_what_transformers_writes(
    name: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(MODELS[name], "float64", seed=5)
    graphs, _ = graphed(driver, attention, monkeypatch)
    oracle = reference.load(tiny_model_dir(MODELS[name]), torch.float64)
    texts = [Text(driver.prompt(40), 0) for _ in range(5)]
    expected = [reference.generate(oracle, text.tokens, 12, (), MODELS[name].words).tokens for text in texts]
    lengths = [len(text.tokens) for text in texts]

    turns = 0
    while unfinished := [
        text for text, length in zip(texts, lengths, strict=True) if len(text.tokens) < length + 12
    ]:
        driver.turn(unfinished)
        turns += 1

    assert [text.tokens[length:] for text, length in zip(texts, lengths, strict=True)] == expected
    assert turns / 4 < graphs.replays < turns, "both ways were to be taken"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_number_of_a_replayed_step_equals_the_eager_ones(
    attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    eager, replayed = (Driver(MODELS["llama"], "float64", seed=6) for _ in range(2))
    graphs, _ = graphed(replayed, attention, monkeypatch)
    outputs = []
    for driver in (eager, replayed):
        texts = [Text(driver.prompt(20), 0) for _ in range(3)]
        rows = [driver.row(text, len(text.tokens)) for text in texts]
        drawn = rows[1]._replace(sampling=Sampling(temperature=0.8, seed=3, logprobs=4))
        outputs += [driver.step(rows, EVERYTHING), driver.step([rows[0], drawn, rows[2]], EVERYTHING)]

    assert graphs.replays == 2
    for ours, theirs in zip(outputs[:2], outputs[2:], strict=True):
        np.testing.assert_array_equal(ours.tokens, theirs.tokens)
        np.testing.assert_array_equal(ours.topk_ids, theirs.topk_ids)
        for column in ("logprobs", "entropy", "max_prob", "topk_logits", "hidden"):
            np.testing.assert_allclose(getattr(ours, column), getattr(theirs, column), atol=1e-6)
    np.testing.assert_allclose(outputs[1].top_logprobs, outputs[3].top_logprobs, atol=1e-6)


def test_a_chunk_that_samples_nothing_has_no_entry() -> None:
    driver = Driver(MODELS["llama"], "float64", seed=7)
    driver.runner.use_graphs(
        TorchSettings(tiny_model_dir(MODELS["llama"]), attention="sdpa", grid=GRID), RepeatedCalls()
    )
    begun, whole = Text([*driver.prompt(20), 3, 4], 0), Text([5, 6], 0)
    rows = [driver.row(begun, 1), driver.row(whole, 2)]
    alone = Driver(MODELS["llama"], "float64", seed=8)

    assert driver.step(rows).tokens.tolist() == alone.step([alone.row(Text([5, 6], 0), 2)]).tokens.tolist()


def test_a_shape_is_captured_once_and_lengths_have_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(MODELS["llama"], "float64", seed=9)
    _, capture = graphed(driver, "sdpa", monkeypatch)
    text = Text([2], 0)
    for _ in range(300):
        step = driver.step([driver.row(text, 1)])
        text.computed += 1
        text.tokens.append(int(step.tokens[0]))

    assert capture.captures == 2  # one row of one token, up to 256 positions and beyond


@pytest.mark.parametrize("attention", ["flash_attn", "flashinfer"])
def test_attention_that_reads_as_far_as_a_row_goes_is_captured_at_the_start(
    attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(MODELS["llama"], "float64", seed=10)
    _, capture = graphed(driver, attention, monkeypatch)
    assert capture.captures == len(GRID.shapes)
    driver.step([driver.row(Text([2, 3], 0), 2)])
    assert capture.captures == len(GRID.shapes)


def test_auto_takes_the_first_library_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(MODELS["llama"], "float64", seed=11)
    found = []
    for name in (None, "flash_attn", "flashinfer"):
        if name:
            install(monkeypatch, name)
        settings = TorchSettings(tiny_model_dir(MODELS["llama"]), grid=GRID)
        found.append(type(driver.runner.use_graphs(settings, RepeatedCalls()).attention).__name__)
    assert found == ["GatheredAttention", "FlashAttention", "FlashInferAttention"]


def test_what_is_not_installed_or_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(MODELS["llama"], "float64", seed=12)
    settings = TorchSettings(tiny_model_dir(MODELS["llama"]), attention="flashinfer", grid=GRID)
    with pytest.raises(ConfigError, match="attention: flashinfer is not installed; install it, or set"):
        driver.runner.use_graphs(settings, RepeatedCalls())
    install(monkeypatch, "flash_attn")
    monkeypatch.setattr(table_attention, "FLASH_ATTN_BLOCK", 256)
    with pytest.raises(ConfigError, match="flash_attn needs block_size a multiple of 256, not 4"):
        driver.runner.use_graphs(replace(settings, attention="flash_attn"), RepeatedCalls())


def test_a_gpu_that_is_not_there_keeps_the_engine_from_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: cuda"):
        TorchRunner(TorchSettings(tiny_model_dir(MODELS["llama"]), device="cuda"))
