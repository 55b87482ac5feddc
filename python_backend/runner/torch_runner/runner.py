"""The `ModelRunner` that runs Hugging Face directories with PyTorch, on the CPU or on a GPU.

Owns the model and its KV pool; decides nothing. One thread calls it. A failure of torch is a
RunnerError and leaves no state behind except garbage in blocks that the failed rows own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from python_backend.runner.base import RunnerInfo
from python_backend.runner.heads.loading import HeadBook, load_head
from python_backend.runner.heads.vocabulary import tokenizer_sha
from python_backend.runner.torch_runner.buckets import Tables
from python_backend.runner.torch_runner.devices import CPU, ask_for_large_pages, refuse_absent
from python_backend.runner.torch_runner.footprint import chosen_dtype, number_format
from python_backend.runner.torch_runner.graphs import Capture, CudaCapture, GraphedSteps, GraphSettings
from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.linears import GPU_PRECISIONS, PRECISIONS, NativeLinear, Precision
from python_backend.runner.torch_runner.model import ALONE, Model
from python_backend.runner.torch_runner.model_config import ModelConfig, load_model_config
from python_backend.runner.torch_runner.native_step import NativeStep
from python_backend.runner.torch_runner.packing import Layout, pack
from python_backend.runner.torch_runner.parallel import Collective, rank_device
from python_backend.runner.torch_runner.settings import TorchSettings
from python_backend.runner.torch_runner.step_numbers import StepNumbers
from python_backend.runner.torch_runner.table_attention import Shape, table_attention
from python_backend.runner.torch_runner.weights import Share, load_weights
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.native import kernels
from router_backend.scheduler.batch import BatchPlan, Row, StepOutput

NOTHING = np.empty(0, np.int64)


class TorchRunner:
    """`info.vocab_size` is the vocabulary that is sampled; see `TorchSettings`."""

    info: RunnerInfo
    pool: KvPool

    def __init__(self, settings: TorchSettings, group: Collective = ALONE) -> None:
        """Loads a rank's share, or all; ConfigError names the file and what is wrong with it."""
        refuse_absent(settings.device)
        ask_for_large_pages()
        torch.set_num_threads(max(1, settings.threads // group.size))
        config = load_model_config(settings.model_dir)
        self.info = _info(settings, config)
        self._vocab_rows = config.vocab_rows
        precision = _precision(settings, config)
        self._group = group
        share = Share(rank_device(settings.device, group.rank), group.rank, group.size)
        self._layout = _layout(settings, config, precision.activations)
        with torch.inference_mode():
            weights = load_weights(settings.model_dir, config, precision, self.info.vocab_size, share)
            config = config.sharded(group.size)
            self._model = Model(config, weights, self.info.length_max, group)
            heads = _heads(settings, config, weights.embed)
            self._numbers = StepNumbers(heads, settings.model)
            # One block more than the scheduler knows of: what pads a captured step is written there.
            self.pool = KvPool(
                config, self.info.num_blocks + 1, settings.block_size, precision.cache, share.device
            )
        is_native = group.size == 1 and isinstance(weights.head, NativeLinear)
        self._native = NativeStep(config, weights, self._model.rope) if is_native else None
        self._graphed: GraphedSteps | None = None
        if share.device.type == "cuda":
            self.use_graphs(settings, CudaCapture())

    def execute(self, plan: BatchPlan) -> StepOutput:
        self._check(plan.rows)
        try:
            with torch.inference_mode():
                return self._executed(plan)
        except (RuntimeError, MemoryError) as error:
            raise RunnerError(f"step {plan.step} of {len(plan.rows)} rows failed: {error}") from error

    def close(self) -> None:
        """Frees weights and KV; nothing may be executed afterwards."""
        del self._model, self._native, self._graphed, self.pool

    def _executed(self, plan: BatchPlan) -> StepOutput:
        captured = None if self._graphed is None else self._graphed.columns(plan.rows, self.pool)
        if captured is not None:
            return self._numbers.finished(plan, captured)
        step = pack(plan.rows, self._layout)
        if self._native is not None:
            return self._numbers.output(plan, *self._native.run(step, self.pool))
        if self._model.device.type != "cpu":
            step = step.to(self._model.device)
        hidden = self._model.forward(step, self.pool)
        if self._group.rank:
            return StepOutput(NOTHING)
        logits = self._model.logits(hidden)
        return self._numbers.output(plan, hidden, logits)

    def use_graphs(self, settings: TorchSettings, capture: Capture) -> GraphedSteps:
        """Run steps that fit a shape of the settings' grid as `capture` replays them, from now on."""
        config, info, tensor = self._model.config, self.info, self.pool.tensor
        shape = Shape(
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            info.block_size,
            tensor.dtype,
            tensor.device,
        )
        attention = table_attention(settings.attention, shape)
        tables = Tables(info.block_size, info.length_max, attention.is_length_bound)
        graphs = GraphSettings(settings.grid, tables, info.num_blocks)
        self._graphed = GraphedSteps(graphs, self._model, self._numbers, attention, capture)
        with torch.inference_mode():
            self._graphed.capture_all(self.pool)
        return self._graphed

    def _check(self, rows: Sequence[Row]) -> None:
        assert rows, "a plan without rows"
        block_size, info = self.info.block_size, self.info
        for row in rows:
            name = row.request_id
            assert row.token_ids and row.start >= 0, f"{name}: no tokens at {row.start}"
            assert len(row.token_ids) > row.draft, f"{name}: a draft without the token before it"
            assert row.end <= info.length_max, f"{name}: {row.end} tokens exceed {info.length_max}"
            assert len(row.blocks) * block_size >= row.end, (
                f"{name}: {len(row.blocks)} blocks for {row.end} tokens"
            )
            # The blocks that are written; those before them were checked when they were.
            used = row.blocks[row.start // block_size : -(-row.end // block_size)]
            assert min(used) >= 0 and max(used) < info.num_blocks, f"{name}: block out of range in {used}"
            low, high = min(row.token_ids), max(row.token_ids)
            assert low >= 0 and high < self._vocab_rows, f"{name}: token {low} or {high} out of range"


def _info(settings: TorchSettings, config: ModelConfig) -> RunnerInfo:
    vocab_size = config.vocab_size if settings.vocab_size is None else settings.vocab_size
    if not 0 < vocab_size <= config.vocab_rows:
        raise ConfigError(f"{settings.model_dir}: vocab_size {vocab_size} exceeds {config.vocab_rows} rows")
    length_max = config.length_max if settings.length_max is None else settings.length_max
    if length_max > config.length_max:
        limit = f"{config.length_max} positions of {settings.model_dir}"
        raise ConfigError(f"length_max {length_max} exceeds the {limit}")
    num_blocks = settings.kv_tokens // settings.block_size
    if num_blocks < 1:
        raise ConfigError(f"kv_tokens {settings.kv_tokens} is less than one block of {settings.block_size}")
    return RunnerInfo(
        vocab_size, length_max, num_blocks, settings.block_size, config.eos_ids, config.hidden_size
    )


def _precision(settings: TorchSettings, config: ModelConfig) -> Precision:
    number_format(config, settings.dtype, settings.device)
    precisions = PRECISIONS if settings.device == CPU else GPU_PRECISIONS
    return precisions[chosen_dtype(settings.dtype, config.num_weights, settings.device)]


def _layout(settings: TorchSettings, config: ModelConfig, dtype: torch.dtype) -> Layout:
    is_paged = settings.device == CPU and dtype == torch.float32 and kernels.compiled() is not None
    return Layout(settings.block_size, config.num_heads // config.num_kv_heads, dtype, is_paged)


def _heads(settings: TorchSettings, config: ModelConfig, embedding: Tensor) -> HeadBook:
    heads = {name: load_head(path, config.hidden_size, embedding) for name, path in settings.heads}
    for head in heads.values():
        head.card.check_tokenizer(tokenizer_sha(settings.model_dir))
    return HeadBook(heads)
