"""The `ModelRunner` over one rank of a TensorRT engine (trtllm.md, design 1).

Contract-tested; unverified on hardware until tools.check_trtllm has run. Lays rows out, enqueues, and
turns logits into a few numbers per row on the GPU; decides nothing. One thread calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from python_backend.runner.base import RunnerInfo
from python_backend.runner.heads.card import read_card
from python_backend.runner.heads.loading import HeadBook, load_head
from python_backend.runner.heads.vocabulary import tokenizer_sha
from python_backend.runner.torch_runner.model_config import load_end_ids, real_vocab_size
from python_backend.runner.torch_runner.step_numbers import StepNumbers
from python_backend.runner.torch_runner.weights import Checkpoint
from python_backend.runner.trtllm_runner.contract import HIDDEN, LOGITS, TAP
from python_backend.runner.trtllm_runner.engine import TrtEngine
from python_backend.runner.trtllm_runner.engine_check import Limits
from python_backend.runner.trtllm_runner.engine_config import EngineConfig, load_engine_config
from python_backend.runner.trtllm_runner.installation import engine_installation
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from python_backend.runner.trtllm_runner.step_tensors import step_tensors
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.scheduler.batch import BatchPlan, Row, StepOutput

NOTHING = np.empty(0, np.int64)


class TrtllmRunner:
    """Rank 0 samples; the others run the same steps and answer nothing."""

    info: RunnerInfo

    def __init__(self, settings: TrtllmSettings) -> None:
        """Loads everything; ConfigError says what is wrong with engine, installation or settings."""
        installation = engine_installation()
        config = load_engine_config(settings.engine_dir)
        self.info = runner_info(settings, config)
        self._config = config
        tokens_max = settings.tokens_max(config.tokens_per_block)
        limits = Limits(settings.batch_max, tokens_max, self.info.length_max, bool(settings.heads))
        self.engine = TrtEngine(settings, config, limits, self.info.num_blocks, installation)
        heads = router_heads(settings, self.info, self.engine.device.torch)
        self._numbers = StepNumbers(heads, settings.model)

    @property
    def rank(self) -> int:
        return self.engine.rank

    def execute(self, plan: BatchPlan) -> StepOutput:
        check_rows(plan.rows, self.info)
        if (plan.needs.hidden or plan.needs.heads) and not self.engine.has_hidden:
            raise RunnerError(f"{HIDDEN}: a policy reads hidden states; build the engine with {TAP}")
        try:
            with torch.inference_mode():
                return self._executed(plan)
        except (RuntimeError, MemoryError) as error:
            raise RunnerError(f"step {plan.step} of {len(plan.rows)} rows failed: {error}") from error

    def close(self) -> None:
        self.engine.close()

    def _executed(self, plan: BatchPlan) -> StepOutput:
        step = step_tensors(plan.rows, self._config.num_layers, self.info.block_size)
        outputs = self.engine.run(step)
        sampled = [line for line, row in zip(step.lines, plan.rows, strict=True) if row.is_sampling]
        if self.rank or not sampled:
            self.engine.device.synchronize()
            return StepOutput(NOTHING)
        lines = torch.tensor(sampled, device=self.engine.device.torch)
        logits = outputs[LOGITS].index_select(0, lines)[:, : self.info.vocab_size]
        hidden = outputs[HIDDEN].index_select(0, lines) if self.engine.has_hidden else logits
        return self._numbers.output(plan, hidden, logits)


def runner_info(settings: TrtllmSettings, config: EngineConfig) -> RunnerInfo:
    """ConfigError where the deployment asks for what the engine was not built for."""
    if config.tp_size != settings.tensor_parallel:
        raise ConfigError(
            f"tensor_parallel: {settings.tensor_parallel}, but {settings.engine_dir} was built for "
            f"{config.tp_size} (convert_checkpoint.py --tp_size)"
        )
    length_max = config.max_seq_len if settings.length_max is None else settings.length_max
    if length_max > config.max_seq_len:
        raise ConfigError(
            f"length_max: {length_max} exceeds the engine's {config.max_seq_len} (--max_seq_len)"
        )
    real = real_vocab_size(settings.model_dir, config.vocab_size)
    vocab_size = real if settings.vocab_size is None else settings.vocab_size
    num_blocks = settings.kv_tokens // config.tokens_per_block
    if num_blocks < 1 or not 0 < vocab_size <= config.vocab_size:
        raise ConfigError(
            f"kv_tokens {settings.kv_tokens} must hold a block of {config.tokens_per_block}, and the "
            f"vocabulary of {vocab_size} must fit the engine's {config.vocab_size}"
        )
    return RunnerInfo(
        vocab_size,
        length_max,
        num_blocks,
        config.tokens_per_block,
        load_end_ids(settings.model_dir),
        config.hidden_size,
        draft_max=0,  # LAST_ONLY: the engine gives the logits of last tokens
    )


def router_heads(settings: TrtllmSettings, info: RunnerInfo, device: torch.device) -> HeadBook:
    """On the engine's device; the token embedding is read from the weights only if a head reads it."""
    if not settings.heads:
        return HeadBook({})
    reads_tokens = any(read_card(path).topk for _, path in settings.heads)
    embedding = _embedding(settings.model_dir, info) if reads_tokens else torch.empty(0, info.hidden_size)
    placed = embedding.to(device)
    heads = {name: load_head(path, info.hidden_size, placed) for name, path in settings.heads}
    for head in heads.values():
        head.card.check_tokenizer(tokenizer_sha(settings.model_dir))
    return HeadBook(heads)


def _embedding(model_dir: Path, info: RunnerInfo) -> Tensor:
    """[rows, E] of the Hugging Face weights beside the engine."""
    name = "model.embed_tokens.weight"
    return Checkpoint(model_dir, torch.float32).take_any(name, info.hidden_size)


def check_rows(rows: Sequence[Row], info: RunnerInfo) -> None:
    """AssertionError where the scheduler broke its promise: the engine would read foreign memory."""
    assert rows, "a plan without rows"
    for row in rows:
        name = row.request_id
        assert row.token_ids and row.start >= 0, f"{name}: no tokens at {row.start}"
        assert row.end <= info.length_max, f"{name}: {row.end} tokens exceed {info.length_max}"
        used = row.blocks[: -(-row.end // info.block_size)]
        assert len(used) * info.block_size >= row.end, f"{name}: {len(used)} blocks for {row.end} tokens"
        assert min(used) >= 0 and max(used) < info.num_blocks, f"{name}: block out of range in {used}"
        low, high = min(row.token_ids), max(row.token_ids)
        assert low >= 0 and high < 2**31, f"{name}: token {low} or {high} out of range"
