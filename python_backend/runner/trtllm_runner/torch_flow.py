"""The `ModelRunner` over TensorRT-LLM's PyTorch flow, for releases after 1.2.1 (trtllm.md, design 2b).

Contract-tested; unverified on hardware until tools.check_trtllm has run. No engine is built: the model is
read from a Hugging Face directory. The manager of TensorRT-LLM owns the KV memory, our scheduler says who
has which block: when the engine is loaded, a few stand-in requests take all of the manager's blocks, and
from then on every step's block table is written over the one that `prepare` filled in. The invariant: a
block of ours is always the same block of theirs, so prefixes can be shared and sequences parked here as
on any other engine.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor

from python_backend.runner import drafts
from python_backend.runner.base import ModelRunner, RunnerInfo
from python_backend.runner.resuming import Resume, ResumingRunner
from python_backend.runner.torch_runner.model_config import ModelConfig, load_model_config
from python_backend.runner.torch_runner.step_numbers import StepNumbers
from python_backend.runner.torch_runner.weights import stored_tensors
from python_backend.runner.trtllm_runner.device import Device, aligned_words
from python_backend.runner.trtllm_runner.runner import NOTHING, check_rows, router_heads
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from python_backend.runner.trtllm_runner.step_tensors import StepTensors, step_tensors
from python_backend.runner.trtllm_runner.torch_installation import TorchInstallation, torch_installation
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.scheduler.batch import BatchPlan, StepOutput

CACHE_TYPES = {torch.bfloat16: "BF16", torch.float16: "HALF", torch.float32: "FLOAT"}
"""Of the keys and values, by the type of the weights."""


class TorchFlowRunner:
    """One GPU. Hidden states come with every step, so router heads need no tap."""

    info: RunnerInfo

    def __init__(self, settings: TrtllmSettings) -> None:
        """Loads everything; ConfigError says what is missing and what to run."""
        config = load_model_config(settings.model_dir)
        self.info = _info(settings, config)
        self._settings = settings
        self._layers = config.num_layers
        tokens_max = settings.tokens_max(settings.block_size)
        self.device = Device(2 * aligned_words(tokens_max), settings.first_gpu)
        self._theirs = torch_installation()
        weights = stored_tensors(settings.model_dir)
        self._model = _loaded(self._theirs, settings, weights).to(self.device.torch)
        cache_type = _cache_type(self._theirs, settings, weights)
        self._cache = TheirCache(self._theirs, settings, config, cache_type)
        self._limits = {"max_num_requests": settings.batch_max, "max_num_tokens": tokens_max}
        heads = router_heads(settings, self.info, self.device.torch)
        self._numbers = StepNumbers(heads, settings.model)

    def execute(self, plan: BatchPlan) -> StepOutput:
        check_rows(plan.rows, self.info)
        try:
            with torch.inference_mode():
                return self._executed(plan)
        except (RuntimeError, MemoryError) as error:
            raise RunnerError(f"step {plan.step} of {len(plan.rows)} rows failed: {error}") from error

    def close(self) -> None:
        self._cache.close()
        del self._model

    def _executed(self, plan: BatchPlan) -> StepOutput:
        step = step_tensors(plan.rows, self._layers, self.info.block_size)
        hidden = self._hidden(step)
        sampled = [line for line, row in zip(step.lines, plan.rows, strict=True) if row.is_sampling]
        if not sampled:
            self.device.synchronize()
            return StepOutput(NOTHING)
        ends = step.values["last_token_ids"][sampled].astype(np.int64) - 1
        looked = torch.from_numpy(drafts.looked_at(ends, plan.sampling_rows)).to(self.device.torch)
        last = hidden.index_select(0, looked)
        logits = self._model.lm_head(last)[:, : self.info.vocab_size]
        return self._numbers.output(plan, last, logits)

    def _hidden(self, step: StepTensors) -> Tensor:
        """[N, E] after the final norm."""
        metadata = self._metadata(step)
        metadata.prepare()
        self._cache.fill(metadata, step)
        placed = self.device.staged({name: step.values[name] for name in ("input_ids", "position_ids")})
        with self._theirs.extra_attrs({"attention_metadata": weakref.ref(metadata)}):
            hidden: Tensor = self._model.model(
                input_ids=placed["input_ids"],
                position_ids=placed["position_ids"][None],
                attn_metadata=metadata,
            )
        return hidden

    def _metadata(self, step: StepTensors) -> Any:
        values, theirs = step.values, self._theirs
        ends = values["last_token_ids"]
        counts = np.diff(ends, prepend=np.int32(0))
        cached = (values["sequence_length"] - counts).tolist()
        return theirs.metadata(
            seq_lens=torch.from_numpy(counts),
            num_contexts=int((values["host_request_types"] == 0).sum()),
            kv_cache_params=theirs.cache_params(use_cache=True, num_cached_tokens_per_seq=cached),
            kv_cache_manager=self._cache.manager,
            request_ids=self._cache.stand_ins(len(ends)),
            prompt_lens=values["host_context_lengths"].tolist(),
            mapping=self._cache.mapping,
            # Without it context rows would not see what they have cached, and nobody would say so.
            runtime_features=theirs.features(chunked_prefill=True),
            **self._limits,
        )


class TheirCache:
    """The KV memory of TensorRT-LLM's manager, addressed by our block numbers."""

    def __init__(
        self, theirs: TorchInstallation, settings: TrtllmSettings, config: ModelConfig, cache_type: Any
    ) -> None:
        self.mapping = theirs.mapping(world_size=1, rank=0, tp_size=1)
        self._layers = config.num_layers
        rows, size = settings.batch_max, settings.block_size
        num_blocks, length_max = settings.kv_tokens // size, settings.length_max or config.length_max
        shares = [len(part) for part in np.array_split(np.arange(num_blocks), rows)]
        self._blocks_per_row = max(-(-length_max // size), *shares)
        self.manager = theirs.cache_manager(
            theirs.cache_config(max_tokens=num_blocks * size, enable_block_reuse=False),
            theirs.self_attention,
            num_layers=config.num_layers,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            tokens_per_block=size,
            max_seq_len=self._blocks_per_row * size,
            max_batch_size=rows,
            mapping=self.mapping,
            dtype=cache_type,
        )
        held = [share for share in shares if share]
        self._names = list(range(len(held)))
        self.manager.add_dummy_requests(self._names, [share * size for share in held])
        self._places = self._learned(held)

    def stand_ins(self, rows: int) -> list[int]:
        """Any requests that the manager knows; whose tables `prepare` copies does not matter."""
        return [self._names[row % len(self._names)] for row in range(rows)]

    def fill(self, metadata: Any, step: StepTensors) -> None:
        """Write the step's own block tables where `prepare` wrote those of the stand-ins."""
        keys = step.values["kv_cache_block_offsets"][0, :, 0]
        rows, width = keys.shape
        numbers = torch.from_numpy(keys // (2 * self._layers)).long()
        tables = self._places[numbers].permute(0, 2, 1)
        metadata.host_kv_cache_block_offsets[0, :rows, :, :width] = tables
        metadata.kv_cache_block_offsets[0, :rows, :, :width] = tables.to(
            metadata.kv_cache_block_offsets.device
        )

    def close(self) -> None:
        self.manager.shutdown()

    def _learned(self, held: list[int]) -> Tensor:
        """int32[num_blocks, 2]: where the manager keeps K and V of each block that the stand-ins took."""
        tables = torch.zeros((1, len(held), 2, self._blocks_per_row), dtype=torch.int32)
        self.manager.impl.copy_batch_block_offsets(tables, self._names, 1, 0)
        places = [tables[0, row, :, :share].t() for row, share in enumerate(held)]
        found = torch.cat(places)
        if len({tuple(pair) for pair in found.tolist()}) != len(found):
            raise ConfigError("the KV cache manager gave one block twice: this release is not supported")
        return found.contiguous()


def _info(settings: TrtllmSettings, config: ModelConfig) -> RunnerInfo:
    length_max = config.length_max if settings.length_max is None else settings.length_max
    if settings.tensor_parallel > 1:
        raise ConfigError("tensor_parallel: engine trtllm_torch runs on one GPU; build engines for more")
    num_blocks = settings.kv_tokens // settings.block_size
    if num_blocks < 1 or length_max > config.length_max:
        raise ConfigError(
            f"kv_tokens {settings.kv_tokens} must hold a block of {settings.block_size}, and length_max "
            f"{length_max} must not exceed the model's {config.length_max} positions"
        )
    vocab_size = config.vocab_size if settings.vocab_size is None else settings.vocab_size
    return RunnerInfo(
        vocab_size, length_max, num_blocks, settings.block_size, config.eos_ids, config.hidden_size
    )


def _cache_type(theirs: TorchInstallation, settings: TrtllmSettings, weights: dict[str, Tensor]) -> Any:
    found = weights["model.embed_tokens.weight"].dtype
    if found not in CACHE_TYPES:
        known = ", ".join(map(str, CACHE_TYPES))
        raise ConfigError(
            f"{settings.model_dir}: weights of type {found} are not supported; known are {known}"
        )
    return getattr(theirs.data_type, CACHE_TYPES[found])


def _loaded(theirs: TorchInstallation, settings: TrtllmSettings, weights: dict[str, Tensor]) -> Any:
    model = theirs.model(theirs.model_config(str(settings.model_dir)))
    model.load_weights(weights)
    for module in model.modules():
        finish = getattr(module, "post_load_weights", None)
        if finish is not None:
            finish()
    return model


def build(settings: TrtllmSettings) -> ModelRunner:
    """The loaded model; ConfigError says what is missing and what to run."""
    runner = TorchFlowRunner(settings)
    return runner if settings.resume is Resume.MID_BLOCK else ResumingRunner(runner, settings.resume)
