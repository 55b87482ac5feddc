"""A rank's share of every layer: what two shares add up to is the whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from python_backend.runner.torch_runner.buckets import Grid
from python_backend.runner.torch_runner.building import build
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.torch_runner.parallel import rank_device
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings, packed, unpacked
from router_backend.core.errors import ConfigError
from router_backend.scheduler.batch import Needs, StepOutput
from tests.tiny_models import TinyModel, frozen, tiny_model_dir
from tests.unit.runner.torch_runner.directories import plan, row

MODELS = {
    "llama-biased": TinyModel("llama", 1, fields=frozen(attention_bias=True)),
    "qwen2-tied": TinyModel("qwen2", 3, fields=frozen(tie_word_embeddings=True)),
    "qwen3": TinyModel("qwen3", 4, words=90, fields=frozen(head_dim=16)),
}
PROMPTS = ([5, 6, 7], [8, 9, 10, 11, 12], [3])
NEEDS = Needs(entropy=True, topk=5, hidden=True)
WAIT_S_MAX = 60.0


class Table:
    """Where threads that play ranks lay down their parts and read everybody's."""

    def __init__(self, size: int) -> None:
        self.parts: list[Tensor | None] = [None] * size
        self.barrier = threading.Barrier(size, timeout=WAIT_S_MAX)


class Seat:
    """A `Collective` of threads."""

    def __init__(self, table: Table, rank: int) -> None:
        self.rank, self.size, self._table = rank, len(table.parts), table

    def summed(self, part: Tensor) -> Tensor:
        self._table.parts[self.rank] = part
        self._table.barrier.wait()
        whole = torch.stack([laid for laid in self._table.parts if laid is not None]).sum(dim=0)
        self._table.barrier.wait()
        return whole


def together(size: int, step: Callable[[Seat], StepOutput]) -> list[StepOutput]:
    table = Table(size)
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(step, [Seat(table, rank) for rank in range(size)]))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_two_shares_of_a_model_compute_what_the_whole_computes(model: TinyModel, dtype: str) -> None:
    settings = TorchSettings(tiny_model_dir(model), dtype, kv_tokens=64)
    prompts = [row(prompt, blocks=(index,)) for index, prompt in enumerate(PROMPTS)]
    more = [row([20, 21], len(prompt), (index,)) for index, prompt in enumerate(PROMPTS)]

    def steps(runner: TorchRunner) -> StepOutput:
        runner.execute(plan(*prompts))
        return runner.execute(plan(*more, needs=NEEDS))

    whole = steps(TorchRunner(settings))
    shared, silent = together(2, lambda seat: steps(TorchRunner(settings, seat)))

    tolerance = 1e-2 if dtype == "float16" else 1e-4
    assert shared.tokens.tolist() == whole.tokens.tolist()
    assert silent.tokens.tolist() == []
    assert whole.topk_logits is not None and whole.hidden is not None
    np.testing.assert_allclose(shared.topk_logits, whole.topk_logits, atol=tolerance)
    np.testing.assert_allclose(shared.hidden, whole.hidden, atol=tolerance)


def test_a_rank_holds_its_share_of_weights_and_cache() -> None:
    settings = TorchSettings(tiny_model_dir(MODELS["qwen3"]), "float64", kv_tokens=64)
    whole = TorchRunner(settings)
    shares: dict[int, TorchRunner] = {}

    def loaded(seat: Seat) -> StepOutput:
        shares[seat.rank] = TorchRunner(settings, seat)
        return StepOutput(np.empty(0, np.int64))

    together(2, loaded)

    assert [shares[rank].pool.tensor.nbytes * 2 for rank in (0, 1)] == [whole.pool.tensor.nbytes] * 2
    cut = [shares[rank]._model.weights.layers[0].qkv.weight for rank in (0, 1)]  # type: ignore[attr-defined]
    qkv = whole._model.weights.layers[0].qkv.weight  # type: ignore[attr-defined]
    assert [len(part) * 2 for part in cut] == [len(qkv)] * 2
    assert cut[1][:32].equal(qkv[32:64])


def test_heads_that_cannot_be_shared_are_refused_before_anything_starts() -> None:
    config = load_model_config(tiny_model_dir(MODELS["qwen3"]))

    assert (config.sharded(2).num_heads, config.sharded(2).num_kv_heads) == (2, 1)
    with pytest.raises(ConfigError, match="tensor_parallel: 4 ranks cannot share num_kv_heads 2"):
        build(TorchSettings(tiny_model_dir(MODELS["qwen3"]), tensor_parallel=4))


def test_one_rank_runs_in_this_process() -> None:
    assert isinstance(build(TorchSettings(tiny_model_dir(MODELS["qwen3"]), kv_tokens=64)), TorchRunner)


def test_every_rank_on_gpus_has_its_own() -> None:
    assert [rank_device("cpu", rank).type for rank in (0, 1)] == ["cpu", "cpu"]
    assert [str(rank_device(device, 1)) for device in ("cuda", "cuda:2")] == ["cuda:1", "cuda:3"]


def test_settings_reach_a_rank_as_they_are() -> None:
    heads = (("r2r", Path("heads/r2r")),)
    settings = TorchSettings(
        Path("m"), "int8", 2, length_max=9, tensor_parallel=2, grid=Grid((1, 2), (1,)), heads=heads
    )

    assert unpacked(packed(settings)) == settings
