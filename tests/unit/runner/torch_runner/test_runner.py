"""The runner's face: what it says of itself, what it refuses, what a step gives back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from python_backend.runner.base import ModelRunner, RunnerInfo
from python_backend.runner.torch_runner.native_step import NativeStep
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import Needs, Row
from tests.tiny_models import EOS_ID, TinyModel, tiny_model_dir
from tests.unit.runner.torch_runner.directories import ALL_NEEDS, plan, row

MODEL = TinyModel("qwen3", words=90)
SETTINGS = TorchSettings(tiny_model_dir(MODEL), kv_tokens=70, block_size=4)


@pytest.fixture(scope="module")
def runner() -> TorchRunner:
    return TorchRunner(SETTINGS)


def test_it_says_what_the_directory_and_the_settings_say(runner: ModelRunner) -> None:
    assert runner.info == RunnerInfo(
        vocab_size=90,
        length_max=1024,
        num_blocks=17,
        block_size=4,
        eos_ids=frozenset({EOS_ID}),
        hidden_size=32,
    )


def test_a_deployment_may_narrow_vocabulary_and_length() -> None:
    runner = TorchRunner(replace(SETTINGS, vocab_size=80, length_max=50))
    output = runner.execute(plan(row([3]), needs=Needs(topk=500)))

    assert (runner.info.vocab_size, runner.info.length_max) == (80, 50)
    assert output.topk_ids is not None and sorted(output.topk_ids[0]) == list(range(80))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "int4"}, "dtype: 'int4' is not one of auto, float32, float64, bfloat16, float16, int8"),
        ({"vocab_size": 98}, "vocab_size 98 exceeds 97 rows"),
        ({"length_max": 1025}, "length_max 1025 exceeds the 1024 positions"),
        ({"kv_tokens": 3}, "kv_tokens 3 is less than one block of 4"),
        ({"model_dir": Path("nowhere")}, "config.json: No such file"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TorchRunner(replace(SETTINGS, **change))


def test_only_what_is_asked_for_is_computed(runner: ModelRunner) -> None:
    output = runner.execute(plan(row([3, 4])))

    signals = (output.entropy, output.max_prob, output.topk_ids, output.topk_logits, output.hidden)
    assert signals == (None,) * 5 and output.logprobs is not None


def test_signals_of_one_step_agree_with_each_other(runner: ModelRunner) -> None:
    rows = (row([3, 4, 5], blocks=[0]), row([6], blocks=[1]))
    output = runner.execute(plan(*rows, needs=ALL_NEEDS._replace(topk=90)))

    assert output.topk_logits is not None and output.topk_ids is not None and output.logprobs is not None
    logp = output.topk_logits - np.log(np.exp(output.topk_logits).sum(axis=1, keepdims=True))
    assert output.tokens.tolist() == output.topk_ids[:, 0].tolist()
    np.testing.assert_allclose(output.entropy, -(np.exp(logp) * logp).sum(axis=1), atol=1e-5)
    np.testing.assert_allclose(output.logprobs, logp[:, 0], atol=1e-5)
    np.testing.assert_allclose(output.max_prob, np.exp(logp[:, 0]), atol=1e-6)
    head = load_file(tiny_model_dir(MODEL) / "model.safetensors")["lm_head.weight"][:90].numpy()
    np.testing.assert_allclose((output.hidden @ head.T).max(axis=1), output.topk_logits[:, 0], atol=1e-5)


def test_logprobs_are_those_of_raw_logits_and_as_many_as_the_keenest_row_asks_for(
    runner: ModelRunner,
) -> None:
    asking = Sampling(logprobs=4, bad_words=((5,),), logit_bias=((6, 3.0),))
    rows = (row([3, 4], blocks=[0], sampling=asking), row([6], blocks=[1], sampling=Sampling(logprobs=2)))

    output = runner.execute(plan(*rows, needs=Needs(topk=4)))
    plain = runner.execute(plan(*(one._replace(sampling=Sampling()) for one in rows)))

    assert output.top_ids is not None and output.top_logprobs is not None
    assert output.top_ids.tolist() == output.topk_ids.tolist()
    np.testing.assert_allclose(output.top_logprobs[:, 0], plain.logprobs, atol=1e-6)
    assert (output.top_logprobs.shape, plain.top_ids) == ((2, 4), None)


def test_arrays_have_one_entry_per_sampling_row_of_plain_types(runner: ModelRunner) -> None:
    rows = (row([3], blocks=[0], is_sampling=False), row([4], blocks=[1]), row([5, 6], blocks=[2]))
    output = runner.execute(plan(*rows, needs=ALL_NEEDS))

    integers = (output.tokens, output.topk_ids)
    numbers = (output.logprobs, output.entropy, output.max_prob, output.topk_logits, output.hidden)
    assert [array.shape for array in integers] == [(2,), (2, 5)]
    assert [array.shape for array in numbers] == [(2,), (2,), (2,), (2, 5), (2, 32)]
    assert {array.dtype for array in integers} == {np.dtype(np.int64)}
    assert {array.dtype for array in numbers} == {np.dtype(np.float32)}


def test_a_step_of_inner_chunks_alone_gives_empty_columns(runner: ModelRunner) -> None:
    output = runner.execute(plan(row([3, 4], is_sampling=False), needs=ALL_NEEDS))

    assert (output.tokens.shape, output.topk_ids.shape, output.hidden.shape) == ((0,), (0, 5), (0, 32))


def test_a_row_whose_numbers_broke_is_marked_and_harms_no_other(runner: TorchRunner) -> None:
    rows = tuple(row([7 + index], start=4, blocks=[2 * index, 2 * index + 1]) for index in range(3))
    for index in range(3):
        runner.execute(plan(row([3, 4, 5, 6], blocks=[2 * index])))
    healthy = runner.execute(plan(*rows, needs=ALL_NEEDS))
    with torch.inference_mode():
        runner.pool.tensor[:, :, 2] = math.nan

    output = runner.execute(plan(*rows, needs=ALL_NEEDS))

    assert np.isnan(output.entropy).tolist() == [False, True, False]
    assert output.tokens[[0, 2]].tolist() == healthy.tokens[[0, 2]].tolist()
    assert 0 <= output.tokens[1] < 90


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (row([]), "no tokens"),
        (row([3], start=-1), "no tokens at -1"),
        (row([3], start=1024, blocks=range(17)), "1025 tokens exceed 1024"),
        (row([3] * 5, blocks=[0]), "1 blocks for 5 tokens"),
        (row([3], blocks=[17]), "block out of range"),
        (row([3], blocks=[-1]), "block out of range"),
        (row([97]), "token 97 or 97 out of range"),
        (row([3, -1]), "token -1 or 3 out of range"),
    ],
)
def test_a_plan_that_promises_too_much_is_our_own_mistake(
    runner: ModelRunner, wrong: Row, message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        runner.execute(plan(wrong))


def test_an_empty_plan_is_our_own_mistake(runner: ModelRunner) -> None:
    with pytest.raises(AssertionError, match="without rows"):
        runner.execute(plan())


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [RuntimeError("no kernel"), MemoryError("no room")])
def test_a_failing_engine_ends_the_batch_with_a_named_error_and_works_again(
    runner: TorchRunner, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(NativeStep, "run", failing(error))
        patch.setattr(runner._model, "forward", failing(error))
        with pytest.raises(RunnerError, match=f"TR_RUNNER: step 0 of 1 rows failed: {error}"):
            runner.execute(plan(row([3])))

    assert runner.execute(plan(row([3]))).tokens.shape == (1,)


def test_closing_frees_the_pool() -> None:
    runner = TorchRunner(SETTINGS)

    runner.close()

    assert not hasattr(runner, "pool")


def test_torch_computes_on_as_many_threads_as_the_deployment_says() -> None:
    TorchRunner(replace(SETTINGS, threads=2)).close()
    two = torch.get_num_threads()
    TorchRunner(SETTINGS).close()

    assert (two, torch.get_num_threads()) == (2, 1)
