"""The torch engine on a tiny model, whole and broken in ways that an engine could be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from python_backend.runner.base import ModelRunner, RunnerInfo
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.errors import RunnerError
from router_backend.scheduler.batch import BatchPlan, Row, StepOutput
from tests.tiny_models import TinyModel, tiny_model_dir
from tools.trtllm_check.scenarios import Words

BLOCK_SIZE = 8
WORDS = Words(tuple(range(10, 90)), BLOCK_SIZE)


def tiny_runner() -> TorchRunner:
    folder = tiny_model_dir(TinyModel("qwen3", seed=3))
    return TorchRunner(TorchSettings(folder, dtype="float32", kv_tokens=2048, block_size=BLOCK_SIZE))


class Broken:
    """A runner that answers wrongly where `is_wrong` says so of one of the plan's rows."""

    info: RunnerInfo

    def __init__(self, inner: ModelRunner, is_wrong: Callable[[Row], bool]) -> None:
        self.info = inner.info
        self._inner = inner
        self._is_wrong = is_wrong

    def execute(self, plan: BatchPlan) -> StepOutput:
        output = self._inner.execute(plan)
        wrong = np.array([self._is_wrong(row) for row in plan.sampling_rows])
        if output.topk_logits is None or not wrong.any():
            return output
        return replace(output, topk_logits=output.topk_logits * np.where(wrong, 1.5, 1.0)[:, None])

    def close(self) -> None:
        self._inner.close()


class Refusing(Broken):
    """A runner that refuses such a row."""

    def execute(self, plan: BatchPlan) -> StepOutput:
        if any(self._is_wrong(row) for row in plan.rows):
            raise RunnerError("the engine refuses the shapes")
        return self._inner.execute(plan)


def is_mid_block(row: Row) -> bool:
    """Several tokens behind a cache that ends inside a block."""
    return len(row.token_ids) > 1 and row.start % BLOCK_SIZE > 0
