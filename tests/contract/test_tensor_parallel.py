"""Two processes over gloo write what one process writes; the death of one is an error at once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from python_backend.runner.base import ModelRunner
from python_backend.runner.ranks.ranked_runner import RankedRunner
from python_backend.runner.registry import runner_factory
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.errors import ConfigError, EngineLostError, RunnerError
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import Needs
from tests.source_tree import ROOT
from tests.tiny_models import TinyModel, frozen, tiny_model_dir
from tests.unit.runner.torch_runner.directories import plan, row

MODEL = TinyModel("qwen3", 4, words=90, fields=frozen(num_key_value_heads=4))
DEATH_KNOWN_S_MAX = 5.0
"""On a machine that is five times slower; some tenths of a second on an idle one."""
STEPS = 12


def settings(tensor_parallel: int, model: TinyModel = MODEL) -> TorchSettings:
    return TorchSettings(
        tiny_model_dir(model), "float64", kv_tokens=1024, block_size=4, tensor_parallel=tensor_parallel
    )


@contextmanager
def engine(chosen: TorchSettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelRunner]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    runner = runner_factory("torch")(chosen)
    try:
        yield runner
    finally:
        runner.close()


def written(runner: ModelRunner) -> list[list[int]]:
    """Four rows in chunks and company that change from step to step; one of them draws its tokens."""
    rng = random.Random(7)
    texts = [[rng.randrange(90) for _ in range(rng.randint(1, 20))] for _ in range(4)]
    computed = [0] * 4
    for _ in range(STEPS):
        rows = []
        for index, text in enumerate(texts):
            end = rng.choice([len(text), rng.randint(computed[index] + 1, len(text))])
            sampling = Sampling(temperature=0.9, top_k=20, seed=3) if index == 3 else Sampling()
            rows.append(
                row(
                    text[computed[index] : end],
                    computed[index],
                    range(16 * index, 16 * index + 16),
                    is_sampling=end == len(text),
                    sampling=sampling,
                )
            )
        tokens = iter(runner.execute(plan(*rows, needs=Needs(entropy=True))).tokens.tolist())
        for index, one in enumerate(rows):
            computed[index] = one.end
            if one.is_sampling:
                texts[index].append(next(tokens))
    return texts


def test_two_processes_write_what_one_writes_and_a_death_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with engine(settings(1), monkeypatch) as whole:
        expected, info = written(whole), whole.info
    with engine(settings(2), monkeypatch) as shared:
        assert written(shared) == expected
        assert shared.info == info
        assert isinstance(shared, RankedRunner)
        victim = shared._workers._children[1]  # type: ignore[attr-defined]
        os.kill(victim.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        with pytest.raises(RunnerError):
            while True:
                shared.execute(plan(row([5], blocks=(0,))))
        with pytest.raises(EngineLostError, match=r"rank 1 ended by SIGKILL|ranks of this engine are gone"):
            shared.execute(plan(row([5], blocks=(0,))))
        assert time.monotonic() - killed_at < DEATH_KNOWN_S_MAX


def test_what_keeps_a_rank_from_loading_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings(2)
    with pytest.raises(ConfigError, match="length_max 4096 exceeds the 1024 positions"):
        runner_factory("torch")(TorchSettings(chosen.model_dir, length_max=4096, tensor_parallel=2))
