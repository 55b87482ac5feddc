"""A `Session` over an emulated engine: checks what it is given as the plugin would trust it, then computes.

It resolves the KV pool from its pointer alone and interprets every number by the contract: a step whose
tensors are wrong in any way fails here or gives other logits than a full recompute.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import torch
from network import Network
from paging import PagedStep

from tensorrt_llm._utils import DataType, mpi_comm, mpi_rank
from tensorrt_llm.plugin.plugin import alive

FLOAT_BYTES = 4
PADDING_LOGIT = 1e4
"""In columns behind the vocabulary, so that whoever samples them is seen."""


class TensorIOMode(Enum):
    INPUT = 0
    OUTPUT = 1


@dataclass
class TensorInfo:
    name: str
    dtype: DataType
    shape: tuple


class ICudaEngine:
    """The enumeration of an engine's inputs and outputs."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self._by_name = {tensor["name"]: tensor for tensor in plan["tensors"]}

    @property
    def num_io_tensors(self) -> int:
        return len(self.plan["tensors"])

    def get_tensor_name(self, index: int) -> str:
        return self.plan["tensors"][index]["name"]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode[self._by_name[name]["mode"]]

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType(self._by_name[name]["dtype"])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._by_name[name]["shape"])

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> tuple[tuple[int, ...], ...]:
        assert profile_index == 0 and self.get_tensor_mode(name) is TensorIOMode.INPUT
        largest = tuple(self._by_name[name]["largest"])
        return (1,) * len(largest), largest, largest


class Session:
    """`run` is a whole step; on a CPU it has ended when it returns."""

    @staticmethod
    def from_serialized_engine(engine: bytes) -> Session:
        session = Session()
        session._engine = ICudaEngine(json.loads(engine))
        session._network = Network(session._engine.plan, mpi_comm())
        session._fits = False
        return session

    @property
    def engine(self) -> ICudaEngine:
        return self._engine

    def infer_shapes(self, inputs: list[TensorInfo]) -> list[TensorInfo]:
        engine, self._fits = self._engine, True
        assert {info.name for info in inputs} == _names(engine, TensorIOMode.INPUT), "inputs left unset"
        for info in inputs:
            if engine.get_tensor_mode(info.name) is not TensorIOMode.INPUT:
                raise ValueError(f"Tensor:{info.name} is not an input tensor")
            if engine.get_tensor_dtype(info.name) is not info.dtype:
                raise ValueError(f"Tensor:{info.name} has wrong dtype")
            largest = engine.get_tensor_profile_shape(info.name, 0)[2]
            sizes = zip(info.shape, largest, strict=True)
            self._fits &= all(0 < size <= most for size, most in sizes)
        outputs = sorted(_names(engine, TensorIOMode.OUTPUT))
        return [
            TensorInfo(name, engine.get_tensor_dtype(name), engine.get_tensor_shape(name)) for name in outputs
        ]

    def run(self, inputs: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor], stream: int) -> bool:
        assert stream == 0
        if not self._fits:
            return False
        assert all(tensor.is_contiguous() for tensor in (*inputs.values(), *outputs.values()))
        step = Step(self._engine.plan, inputs)
        hidden = self._network.hidden(step)[step.last]
        logits = self._network.logits(hidden)
        outputs["logits"].fill_(PADDING_LOGIT)
        outputs["logits"][:, : logits.shape[1]] = logits
        if "router_hidden" in outputs:
            outputs["router_hidden"].copy_(hidden)
        return True


def _names(engine: ICudaEngine, mode: TensorIOMode) -> set[str]:
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    return {name for name in names if engine.get_tensor_mode(name) is mode}


class Step(PagedStep):
    """What the plugin reads of one step; AssertionError where the numbers contradict each other."""

    def __init__(self, plan: dict[str, Any], inputs: dict[str, torch.Tensor]) -> None:
        self.plan, self.inputs = plan, inputs
        mapping = inputs["host_kv_cache_pool_mapping"].reshape(plan["layers"], -1)
        self.places = (mapping[:, 1] if mapping.shape[1] == 2 else torch.arange(plan["layers"])).tolist()
        self.tokens, self.positions = inputs["input_ids"].long(), inputs["position_ids"].long()
        ends = inputs["last_token_ids"].tolist()
        self.counts = np.diff([0, *ends]).tolist()
        self.lengths: list[int] = inputs["sequence_length"].tolist()
        self.types: list[int] = inputs["host_request_types"].tolist()
        self.last = torch.tensor(ends) - 1
        self._check()
        self.keys, self.values = inputs["host_kv_cache_block_offsets"][0].long().unbind(1)
        self.pool = self._resolved(int(inputs["host_kv_cache_pool_pointers"][0, 0]))

    def _resolved(self, pointer: int) -> torch.Tensor:
        """[units, heads, T, D] of the memory behind `pointer`, as far as this step's tables reach."""
        shape = (self.plan["kv_heads"], self.plan["tokens_per_block"], self.plan["head_dim"])
        units = int(self.values.max()) + 2 * self.plan["layers"]
        count = units * int(np.prod(shape))
        memory = (ctypes.c_char * (count * FLOAT_BYTES)).from_address(pointer)
        return torch.frombuffer(memory, dtype=torch.float32).view(units, *shape)

    def _check(self) -> None:
        own = self.inputs
        for name in ("context_lengths", "kv_cache_block_offsets"):
            assert torch.equal(own[name], own[f"host_{name}"]), f"{name} differs from its copy on the host"
        assert self.types == sorted(self.types), "a generation row before a context row"
        assert min(self.counts) > 0 and sum(self.counts) == len(self.tokens) == len(self.positions)
        assert own["cache_indirection"].shape == (len(self.types), 1, self.plan["max_seq_len"])
        assert not own["cache_indirection"].any()
        assert (
            own["host_max_attention_window_sizes"].tolist()
            == [self.plan["max_seq_len"]] * self.plan["layers"]
        )
        assert own["host_sink_token_length"].tolist() == own["host_context_progress"].tolist() == [0]
        assert set(own["host_runtime_perf_knobs"].tolist()[2:]) == {-1}
        assert set(own.get("all_reduce_workspace", torch.zeros(0)).tolist()) <= set(alive), "buffers are gone"
        self._check_rows()

    def _check_rows(self) -> None:
        past: list[int] = self.inputs["host_past_key_value_lengths"].tolist()
        prompt: list[int] = self.inputs["context_lengths"].tolist()
        begin = 0
        for row, (count, length) in enumerate(zip(self.counts, self.lengths, strict=True)):
            assert self.positions[begin : begin + count].tolist() == list(range(length - count, length))
            begin += count
            if self.types[row]:
                assert (count, past[row]) == (1, length - 1) and 0 < prompt[row] <= length and length > 1
            else:
                assert (past[row], prompt[row]) == (length, count)
        assert mpi_rank() == self.plan["rank"], "a rank runs another rank's engine"
