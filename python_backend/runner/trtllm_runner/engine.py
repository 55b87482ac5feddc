"""One rank's TensorRT engine: its KV pool, its constant inputs, and one enqueue per step.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Owns device memory and no
sequence: which block belongs to whom is the scheduler's. The invariant: every input of the engine is
bound in every step, with the type and the place (GPU or host) that the contract gives it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from python_backend.runner.trtllm_runner.contract import (
    BY_NAME,
    HIDDEN,
    POOL_MAPPING,
    WORKSPACE,
    Direction,
)
from python_backend.runner.trtllm_runner.contract import Device as Place
from python_backend.runner.trtllm_runner.device import Device, aligned_words
from python_backend.runner.trtllm_runner.engine_check import (
    FoundTensor,
    Limits,
    tensor_faults,
    workspace_fault,
)
from python_backend.runner.trtllm_runner.engine_config import EngineConfig, engine_file
from python_backend.runner.trtllm_runner.installation import EngineInstallation
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from python_backend.runner.trtllm_runner.step_tensors import StepTensors
from router_backend.core.errors import ConfigError, RunnerError

STEP_INPUTS = 9
"""Inputs of `StepTensors.values` that lie on the GPU, and slack."""
PERF_KNOBS = 16
MULTI_BLOCK_MODE, FP32_CONTEXT_SUMS = 0, 1
"""Positions of `host_runtime_perf_knobs`."""


class TrtEngine:
    """`num_blocks` blocks of `config.tokens_per_block` tokens; `pool` is the tensor behind them."""

    def __init__(
        self,
        settings: TrtllmSettings,
        config: EngineConfig,
        limits: Limits,
        num_blocks: int,
        installation: EngineInstallation,
    ) -> None:
        """Loads and checks; ConfigError names tensor and build flag. MPI says which rank this is."""
        self.rank = int(installation.mpi_comm().Get_rank()) if config.tp_size > 1 else 0
        self._config, self._installation, self._rows_max = config, installation, limits.rows_max
        self.device = Device(_staging_words(config, limits), settings.first_gpu + self.rank)
        self._session = installation.open_session(_read(engine_file(settings.engine_dir, self.rank)))
        self.found = found_tensors(self._session.engine, installation)
        self._refuse(settings.engine_dir, tensor_faults(self.found, config, limits))
        self.pool = torch.zeros(
            _pool_shape(config, num_blocks), dtype=_dtype(config), device=self.device.torch
        )
        self._constants = self._fixed()
        self._outputs = {
            one.name: self._output(one) for one in self.found if one.direction is Direction.OUTPUT
        }

    @property
    def has_hidden(self) -> bool:
        return HIDDEN in self._outputs

    def run(self, step: StepTensors) -> dict[str, Tensor]:
        """`logits` [B, vocab_padded] and, if tapped, `router_hidden` [B, E]; valid until the next step.

        Returns once the step is enqueued: what reads the outputs on the same stream comes after it.
        """
        rows = len(step.lines)
        inputs = self._bound(step)
        info = self._installation.tensor_info
        described = [
            info(name, self._installation.trt_dtype(tensor.dtype), tuple(tensor.shape))
            for name, tensor in inputs.items()
        ]
        if self._session.infer_shapes(described) is None:
            raise RunnerError(f"the engine refuses the shapes of {rows} rows and {step.num_tokens} tokens")
        outputs = {name: whole[:rows] for name, whole in self._outputs.items()}
        if not self._session.run(inputs, outputs, self.device.stream):
            raise RunnerError(f"the engine refuses {rows} rows and {step.num_tokens} tokens")
        return outputs

    def close(self) -> None:
        """Frees pool and engine; nothing may be run afterwards."""
        self.device.synchronize()
        del self._session, self.pool, self._constants, self._outputs

    def _bound(self, step: StepTensors) -> dict[str, Tensor]:
        hosted = {name: value for name, value in step.values.items() if BY_NAME[name].device is Place.CPU}
        moved = {name: value for name, value in step.values.items() if name not in hosted}
        beams = {"cache_indirection": self._constants["cache_indirection"][: len(step.lines)]}
        host = {name: torch.from_numpy(value) for name, value in hosted.items()}
        return {**self._constants, **host, **self.device.staged(moved), **beams}

    def _fixed(self) -> dict[str, Tensor]:
        """Inputs that no step changes."""
        config, layers = self._config, self._config.num_layers
        knobs = torch.full((PERF_KNOBS,), -1, dtype=torch.int64)
        knobs[[MULTI_BLOCK_MODE, FP32_CONTEXT_SUMS]] = 1
        capacity = torch.zeros(
            (self._rows_max, 1, config.max_seq_len), dtype=torch.int32, device=self.device.torch
        )
        fixed = {
            "host_kv_cache_pool_pointers": torch.tensor([[self.pool.data_ptr(), 0]], dtype=torch.int64),
            POOL_MAPPING: self._pool_mapping(),
            "host_max_attention_window_sizes": torch.full((layers,), config.max_seq_len, dtype=torch.int32),
            "host_sink_token_length": torch.zeros(1, dtype=torch.int32),
            "cache_indirection": capacity,
            "host_runtime_perf_knobs": knobs,
            "host_context_progress": torch.zeros(1, dtype=torch.int64),
        }
        return fixed | self._workspace()

    def _pool_mapping(self) -> Tensor:
        """[layer, place in the pool] per layer; older releases take the pool's number alone."""
        layers = self._config.num_layers
        (rank,) = (len(one.shape) for one in self.found if one.name == POOL_MAPPING)
        if rank == 1:
            return torch.zeros(layers, dtype=torch.int32)
        return torch.stack(
            [torch.zeros(layers, dtype=torch.int32), torch.arange(layers, dtype=torch.int32)], 1
        )

    def _workspace(self) -> dict[str, Tensor]:
        size = self._config.tp_size
        if size == 1:
            return {}
        mapping = self._installation.mapping(
            world_size=size, rank=self.rank, gpus_per_node=size, tp_size=size
        )
        wanted = self._installation.reducer.max_workspace_size_auto(size)
        self._ipc_buffers, pointers = self._installation.reducer.allocate_workspace(mapping, wanted)
        self._refuse(Path(WORKSPACE), [workspace_fault(pointers.numel(), self.found)])
        return {WORKSPACE: pointers}

    def _output(self, tensor: FoundTensor) -> Tensor:
        """Room for the largest batch."""
        dtype = getattr(torch, tensor.dtype)
        return torch.zeros((self._rows_max, tensor.shape[-1]), dtype=dtype, device=self.device.torch)

    def _refuse(self, source: Path, faults: Sequence[str]) -> None:
        told = [fault for fault in faults if fault]
        if told:
            release = f"built by {self._config.version}, run by {self._installation.version}"
            raise ConfigError(f"{source} ({release}): " + "; ".join(told))


def found_tensors(engine: Any, installation: EngineInstallation) -> list[FoundTensor]:
    """What the engine says of its own inputs and outputs, in its order."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    return [_found(engine, name, installation) for name in names]


def _found(engine: Any, name: str, installation: EngineInstallation) -> FoundTensor:
    is_input = engine.get_tensor_mode(name).name == "INPUT"
    dtype = str(installation.torch_dtype(engine.get_tensor_dtype(name))).removeprefix("torch.")
    largest = tuple(engine.get_tensor_profile_shape(name, 0)[2]) if is_input else ()
    direction = Direction.INPUT if is_input else Direction.OUTPUT
    return FoundTensor(name, direction, dtype, tuple(engine.get_tensor_shape(name)), largest)


def _pool_shape(config: EngineConfig, num_blocks: int) -> tuple[int, ...]:
    one = (config.rank_kv_heads, config.tokens_per_block, config.head_dim)
    return (num_blocks, config.num_layers, 2, *one)


def _dtype(config: EngineConfig) -> torch.dtype:
    found = getattr(torch, config.dtype, None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"pretrained_config.dtype: {config.dtype!r} is no type of torch")
    return found


def _staging_words(config: EngineConfig, limits: Limits) -> int:
    tokens, rows = aligned_words(limits.tokens_max), aligned_words(limits.rows_max)
    tables = aligned_words(2 * limits.rows_max * config.blocks_per_row_max)
    return 2 * tokens + 3 * rows + tables + STEP_INPUTS * aligned_words(1)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}: build it with python -m tools.build_engine, one file per rank"
        ) from error
