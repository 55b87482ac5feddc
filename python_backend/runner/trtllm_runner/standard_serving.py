"""One request per token through TensorRT-LLM's LLM API: what standard serving costs, for benchmarks only.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Every token of every row is a
new request with the whole text so far and `max_tokens=1`; what was computed before is found again by the
API's block reuse, not by our block tables. This is the baseline that routing by parked sequences is
compared with (trtllm.md, design 3): never serve with it. It must never look at a row's blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from python_backend.runner.base import RunnerInfo
from python_backend.runner.heads.loading import HeadBook
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.torch_runner.step_numbers import StepNumbers
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from router_backend.core.errors import ConfigError, RunnerError
from router_backend.scheduler.batch import BatchPlan, Row, StepOutput

NOTHING = np.empty(0, np.int64)


class StandardServing:
    """A `ModelRunner`, so that the same scheduler and hand-offs drive it. Shows no hidden states."""

    info: RunnerInfo

    def __init__(self, settings: TrtllmSettings) -> None:
        """ConfigError says what is missing and what to run."""
        if settings.first_gpu:
            raise ConfigError("device: engine trtllm_llm takes the first GPUs that it sees")
        config = load_model_config(settings.model_dir)
        length_max = settings.length_max or config.length_max
        self.info = RunnerInfo(
            settings.vocab_size or config.vocab_size,
            length_max,
            max(1, settings.kv_tokens // settings.block_size),
            settings.block_size,
            config.eos_ids,
            config.hidden_size,
            draft_max=0,
        )
        api, cache_config, self._sampling = _llm_api()
        self._numbers = StepNumbers(HeadBook({}), settings.model)
        self._llm = api(
            model=str(settings.model_dir),
            tensor_parallel_size=settings.tensor_parallel,
            kv_cache_config=cache_config(
                enable_block_reuse=True,
                enable_partial_reuse=True,
                copy_on_partial_reuse=True,
                max_tokens=settings.kv_tokens,
            ),
            max_batch_size=settings.batch_max,
            max_num_tokens=max(settings.batch_tokens_max, length_max),
            max_seq_len=length_max + 1,
            gather_generation_logits=True,
        )

    def execute(self, plan: BatchPlan) -> StepOutput:
        """A row that does not sample asks nothing: its last chunk asks for the whole text."""
        if plan.needs.hidden or plan.needs.heads:
            raise RunnerError("the LLM API shows no hidden states; use engine: trtllm with the hidden tap")
        if not plan.sampling_rows:
            return StepOutput(NOTHING)
        try:
            logits = torch.stack(self._asked(plan.sampling_rows))
        except (RuntimeError, ValueError) as error:
            raise RunnerError(f"step {plan.step} failed: {error}") from error
        return self._numbers.output(plan, logits, logits)

    def close(self) -> None:
        self._llm.shutdown()

    def _asked(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """All of them at once, as a server would be asked by as many clients."""
        one = self._sampling(max_tokens=1, return_generation_logits=True)
        asked = [
            self._llm.generate_async({"prompt_token_ids": list(row.history[: row.end])}, one) for row in rows
        ]
        return [self._logits(handle.result()) for handle in asked]

    def _logits(self, answer: Any) -> torch.Tensor:
        """[vocab] of the one token that was asked for."""
        found: torch.Tensor = answer.outputs[0].generation_logits
        return found.reshape(-1, found.shape[-1])[-1, : self.info.vocab_size]


def _llm_api() -> tuple[Any, Any, Any]:
    try:
        from tensorrt_llm import LLM, SamplingParams
        from tensorrt_llm.llmapi import KvCacheConfig
    except ImportError as error:
        raise ConfigError(
            f"engine trtllm_llm: {error}; run inside a TensorRT-LLM container (python -m tools.check_trtllm)"
        ) from error
    return LLM, KvCacheConfig, SamplingParams


def build(settings: TrtllmSettings) -> StandardServing:
    return StandardServing(settings)
