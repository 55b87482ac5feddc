"""The PyTorch flow and the LLM API at their edges; that they compute right is in the random batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from python_backend.runner.registry import runner_factory
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row
from tests.contract.emulated import use_emulator
from tests.tiny_models import TinyModel, tiny_model_dir

MODEL = TinyModel("qwen3", seed=3)
FLOWS = ("trtllm_torch", "trtllm_llm")
ROW = Row(RequestId("r"), [5, 6, 7], 0, [2, 3], True, Sampling(), 0, [5, 6, 7], 3)


@pytest.fixture
def emulator() -> Iterator[None]:
    with use_emulator():
        yield


def settings() -> TrtllmSettings:
    place = tiny_model_dir(MODEL)
    return TrtllmSettings(
        place, place, kv_tokens=64, batch_max=4, batch_tokens_max=64, block_size=4, length_max=60
    )


def plan(needs: Needs, *rows: Row) -> BatchPlan:
    return BatchPlan(1, rows, needs, LaunchReason.DRAIN)


@pytest.mark.usefixtures("emulator")
def test_the_pytorch_flow_shows_the_hidden_state_that_the_logits_come_from() -> None:
    runner = runner_factory("trtllm_torch")(settings())
    output = runner.execute(plan(Needs(hidden=True, topk=97), ROW))
    logits = MODEL.network().lm_head(torch.from_numpy(output.hidden)).detach().numpy()
    assert output.topk_ids is not None and output.topk_logits is not None
    assert np.abs(np.take_along_axis(logits, output.topk_ids, 1) - output.topk_logits).max() < 1e-4


@pytest.mark.usefixtures("emulator")
def test_the_pytorch_flow_reads_a_draft_in_one_pass() -> None:
    """As it reads each of its tokens by itself; the others, which show one token of a row, read none."""
    runner = runner_factory("trtllm_torch")(settings())
    draft = ROW._replace(token_ids=[5, 6, 7, 8], history=[5, 6, 7, 8], draft=2)
    read = runner.execute(plan(Needs(), draft, ROW._replace(blocks=[4]))).draft
    alone = [runner.execute(plan(Needs(), ROW._replace(token_ids=[5, 6, 7][:end]))) for end in (2, 3)]
    assert read is not None
    assert read.tokens[0].tolist() == [one.tokens[0] for one in alone]
    assert runner_factory("trtllm_llm")(settings()).info.draft_max == 0


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("flow", FLOWS)
def test_a_step_in_which_nobody_samples_answers_nothing(flow: str) -> None:
    runner = runner_factory(flow)(settings())
    output = runner.execute(plan(Needs(), ROW._replace(is_sampling=False)))
    assert len(output.tokens) == 0
    runner.close()


@pytest.mark.usefixtures("emulator")
def test_more_rows_than_blocks_still_fit_the_stand_ins() -> None:
    """Two blocks for four rows: some rows share a stand-in, whose table is overwritten anyway."""
    runner = runner_factory("trtllm_torch")(replace(settings(), kv_tokens=8, length_max=8))
    rows = [ROW._replace(token_ids=[9], blocks=[index]) for index in (0, 1)]
    tokens = [runner.execute(plan(Needs(), *order)).tokens.tolist() for order in (rows, rows[::-1])]
    assert tokens[0] == tokens[1] == [tokens[0][0]] * 2


@pytest.mark.usefixtures("emulator")
def test_what_a_flow_cannot_do_is_refused() -> None:
    build, standard = runner_factory("trtllm_torch"), runner_factory("trtllm_llm")(settings())
    with pytest.raises(ConfigError, match="tensor_parallel: engine trtllm_torch runs on one GPU"):
        build(replace(settings(), tensor_parallel=2))
    with pytest.raises(ConfigError, match="kv_tokens 3 must hold a block of 4"):
        build(replace(settings(), kv_tokens=3))
    with pytest.raises(RunnerError, match="the LLM API shows no hidden states"):
        standard.execute(plan(Needs(hidden=True), ROW))
    with pytest.raises(RunnerError, match="an empty prompt"):
        standard.execute(plan(Needs(), ROW._replace(history=[])))


@pytest.mark.parametrize("flow", FLOWS)
def test_without_tensorrt_llm_the_tool_to_run_is_named(flow: str) -> None:
    with pytest.raises(ConfigError, match=f"engine {flow}: .*tensorrt_llm.*tools.check_trtllm"):
        runner_factory(flow)(settings())


def test_the_llm_api_refuses_a_gpu_that_it_would_not_take() -> None:
    with pytest.raises(ConfigError, match="device: engine trtllm_llm takes the first GPUs"):
        runner_factory("trtllm_llm")(replace(settings(), first_gpu=1))
