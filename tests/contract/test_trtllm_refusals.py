"""Engines, installations and settings that break the contract: each refusal names the tensor or the flag."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from python_backend.runner.trtllm_runner.building import build
from python_backend.runner.trtllm_runner.engine_check import Direction, FoundTensor, workspace_fault
from python_backend.runner.trtllm_runner.runner import TrtllmRunner
from python_backend.runner.trtllm_runner.settings import TrtllmSettings, packed, unpacked
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row
from tests.contract.emulated import Build, lay_out, use_emulator
from tests.source_tree import ROOT
from tests.tiny_models import TinyModel, tiny_model_dir

MODEL = TinyModel("qwen3", seed=3)
PLUGINS = "build_config.plugin_config."


@pytest.fixture
def emulator() -> Iterator[None]:
    with use_emulator():
        yield


def settings(folder: Path, chosen: Build | None = None) -> TrtllmSettings:
    lay_out(folder, tiny_model_dir(MODEL), chosen)
    return TrtllmSettings(folder / "engine", folder, kv_tokens=64, batch_max=4, batch_tokens_max=64)


REFUSALS: dict[str, tuple[Build, str]] = {
    "missing": (
        Build(tensors={"host_context_progress": None}),
        "host_context_progress: the engine has no such input; build with TensorRT-LLM",
    ),
    "extra": (
        Build(tensors={"surprise": {"mode": "INPUT", "dtype": "int32", "shape": [-1], "largest": [8]}}),
        "surprise: this input is not in the contract",
    ),
    "extra of a known flag": (
        Build(tensors={"lora_ranks": {"mode": "INPUT", "dtype": "int32", "shape": [-1], "largest": [8]}}),
        "lora_ranks: this input is not in the contract; build with --lora_plugin disable",
    ),
    "type": (
        Build(tensors={"sequence_length": {"dtype": "int64"}}),
        "sequence_length: has type int64, not int32; build with --gpt_attention_plugin",
    ),
    "direction": (
        Build(tensors={"position_ids": {"mode": "OUTPUT"}}),
        "position_ids: is an output, not an input; build with --remove_input_padding enable",
    ),
    "rank": (
        Build(tensors={"input_ids": {"shape": [-1, -1], "largest": [8, 64]}}),
        "input_ids: has 2 dimensions, not 1; build with --remove_input_padding enable",
    ),
    "size": (
        Build(tensors={"host_runtime_perf_knobs": {"shape": [8], "largest": [8]}}),
        r"host_runtime_perf_knobs: has shape \[8\], not 16",
    ),
    "rows": (Build(max_batch_size=3), "last_token_ids: the engine takes up to 3, .* 4; .*--max_batch_size"),
    "tokens": (Build(max_num_tokens=32), "input_ids: the engine takes up to 32, .*--max_num_tokens"),
    "context logits": (
        Build(
            config={"build_config.gather_context_logits": True},
            tensors={"last_token_ids": None},
        ),
        "gather_context_logits: true; build with no --gather_context_logits",
    ),
    "only the last token's logits": (
        Build(tensors={"last_token_ids": None}),
        "last_token_ids: the engine has no such input; build with no --gather_context_logits",
    ),
    "paged context": (
        Build(config={PLUGINS + "use_paged_context_fmha": False}),
        "use_paged_context_fmha: false; build with --use_paged_context_fmha enable",
    ),
    "ranks": (Build(tp_size=2), "tensor_parallel: 1, but .* was built for 2"),
}


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("case", REFUSALS)
def test_an_engine_that_breaks_the_contract_is_refused_by_name(case: str, tmp_path: Path) -> None:
    chosen, message = REFUSALS[case]
    with pytest.raises(ConfigError, match=message):
        build(settings(tmp_path / "small", chosen))


@pytest.mark.usefixtures("emulator")
def test_an_old_engine_takes_the_number_of_the_pool_alone(tmp_path: Path) -> None:
    old = Build(tensors={"host_kv_cache_pool_mapping": {"shape": [2], "largest": [2]}})
    plan = BatchPlan(1, (row([5, 6]),), Needs(), LaunchReason.DRAIN)
    answers = []
    for number, chosen in enumerate((Build(), old)):
        runner = TrtllmRunner(settings(tmp_path / str(number), chosen))
        answers.append(runner.execute(plan).tokens.tolist())
        runner.close()
    assert answers[0] == answers[1]


def row(tokens: list[int], **changes: Any) -> Row:
    return Row(RequestId("r"), tokens, 0, [2, 3], True, Sampling(), 0)._replace(**changes)


@pytest.mark.usefixtures("emulator")
def test_a_workspace_of_another_release_is_named_when_the_engine_is_loaded(tmp_path: Path) -> None:
    """Seven pointers a rank and two, where the installed release has three."""
    older = Build(tp_size=2, tensors={"all_reduce_workspace": {"shape": [16], "largest": [16]}})
    with pytest.raises(
        ConfigError, match="all_reduce_workspace: the engine takes 16 pointers, this release al"
    ):
        TrtllmRunner(replace(settings(tmp_path / "large", older), tensor_parallel=2))


def test_a_workspace_of_another_release_is_named_with_both_lengths() -> None:
    found = FoundTensor("all_reduce_workspace", Direction.INPUT, "int64", (16,), (16,))
    assert workspace_fault(16, [found]) == ""
    assert workspace_fault(17, [found]).startswith(
        "all_reduce_workspace: the engine takes 16 pointers, this release allocates 17"
    )


@pytest.mark.usefixtures("emulator")
def test_hidden_states_need_the_tap_by_name(tmp_path: Path) -> None:
    runner = TrtllmRunner(settings(tmp_path / "small"))
    plan = BatchPlan(1, (row([5]),), Needs(hidden=True), LaunchReason.DRAIN)
    with pytest.raises(RunnerError, match=r"router_hidden: a policy reads hidden states; build .*--tap"):
        runner.execute(plan)

    with pytest.raises(
        ConfigError, match="router_hidden: the engine has no such output; build with --model_cls"
    ):
        build(replace(settings(tmp_path / "other"), heads=(("citer", tmp_path),)))


@pytest.mark.usefixtures("emulator")
def test_the_tap_is_the_hidden_state_that_the_logits_come_from(tmp_path: Path) -> None:
    runner = TrtllmRunner(settings(tmp_path / "small", Build(is_tapped=True)))
    needs = Needs(hidden=True, topk=97)
    output = runner.execute(BatchPlan(1, (row([5, 6, 7]), row([8])), needs, LaunchReason.DRAIN))

    network = MODEL.network()
    logits = network.lm_head(torch.from_numpy(output.hidden)).detach().numpy()
    assert output.topk_ids is not None and output.topk_logits is not None
    assert np.abs(np.take_along_axis(logits, output.topk_ids, 1) - output.topk_logits).max() < 1e-4


@pytest.mark.usefixtures("emulator")
def test_what_the_deployment_asks_must_fit_the_engine(tmp_path: Path) -> None:
    base = settings(tmp_path / "small")
    with pytest.raises(ConfigError, match=r"length_max: 600 exceeds the engine's 512 .--max_seq_len"):
        build(replace(base, length_max=600))
    with pytest.raises(ConfigError, match="kv_tokens 3 must hold a block of 4"):
        build(replace(base, kv_tokens=3))
    (base.engine_dir / "rank0.engine").unlink()
    with pytest.raises(ConfigError, match=r"rank0.engine: No such file .* python -m tools.build_engine"):
        build(base)


def test_without_tensorrt_llm_the_container_and_the_tool_are_named(tmp_path: Path) -> None:
    message = (
        "tensorrt_llm is not installed; run inside Triton's TensorRT-LLM container .* tools.check_trtllm"
    )
    with pytest.raises(ConfigError, match=message):
        build(settings(tmp_path / "small"))


def test_settings_survive_the_command_line_of_a_rank(tmp_path: Path) -> None:
    own = replace(
        settings(tmp_path / "small"), heads=(("citer", tmp_path),), vocab_size=90, tensor_parallel=2
    )
    assert unpacked(packed(own)) == own


def test_the_launcher_of_ranks_needs_neither_torch_nor_tensorrt_llm() -> None:
    module = "python_backend.runner.trtllm_runner.building"
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'tensorrt_llm'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
