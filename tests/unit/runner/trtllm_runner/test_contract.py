"""The contract holds together as data: names once, every tensor mendable, and it needs nothing installed."""

from __future__ import annotations

import subprocess
import sys

from python_backend.runner.trtllm_runner.contract import (
    BY_NAME,
    CONFIG_RULES,
    SYMBOLS,
    TENSORS,
    UNWANTED,
    Device,
    Direction,
    When,
)
from tests.source_tree import ROOT

INPUTS_OF_ONE_RANK = 17
"""What an upstream trace of a real engine shows beside `logits`."""


def test_an_engine_of_one_rank_has_seventeen_inputs_and_logits() -> None:
    always = [tensor for tensor in TENSORS if tensor.when is When.ALWAYS]
    inputs = [tensor for tensor in always if tensor.direction is Direction.INPUT]
    assert len(inputs) == INPUTS_OF_ONE_RANK
    assert [tensor.name for tensor in always if tensor not in inputs] == ["logits"]


def test_host_tensors_are_those_the_plugin_reads_while_it_is_enqueued() -> None:
    hosted = {tensor.name for tensor in TENSORS if tensor.device is Device.CPU}
    assert hosted == {name for name in BY_NAME if name.startswith("host_")} | {"all_reduce_workspace"}


def test_every_tensor_is_named_once_and_says_what_mends_it() -> None:
    assert len(BY_NAME) == len(TENSORS)
    assert all(tensor.flag and tensor.dtypes and tensor.shapes for tensor in TENSORS)
    assert not [name for name in BY_NAME for other in UNWANTED if name.startswith(other.prefix)]
    assert all(rule.flag and rule.allowed for rule in CONFIG_RULES)


def test_only_the_pool_mapping_comes_in_two_ranks() -> None:
    assert {tensor.name: tensor.ranks for tensor in TENSORS if len(tensor.ranks) > 1} == {
        "host_kv_cache_pool_mapping": (2, 1)
    }


def test_symbols_are_listed_once_for_each_design() -> None:
    assert len({(one.design, one.module, one.name) for one in SYMBOLS}) == len(SYMBOLS)


def test_the_contract_needs_neither_torch_nor_tensorrt_llm() -> None:
    module = "python_backend.runner.trtllm_runner.contract"
    code = f"import sys, {module}; sys.exit(bool({{'torch', 'tensorrt_llm', 'tensorrt'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
