"""Blocks are stored where the slots say, layer by layer."""

from __future__ import annotations

import torch

from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.model_config import load_model_config
from tests.tiny_models import TinyModel, tiny_model_dir


def test_what_is_written_is_read_in_any_order_and_lies_in_its_block() -> None:
    pool = KvPool(load_model_config(tiny_model_dir(TinyModel())), 3, 4, torch.float32)
    keys = torch.arange(3 * 2 * 8, dtype=torch.float32).view(3, 2, 8)

    pool.write(1, torch.tensor([9, 0, 5]), keys, -keys)
    read_keys, read_values = (
        part.clone() for part in pool.read(1, torch.tensor([5, 9, 5, 0]), torch.float32)
    )

    assert read_keys.equal(keys[[2, 0, 2, 1]]) and read_values.equal(-keys[[2, 0, 2, 1]])
    assert pool.tensor.shape == (2, 2, 3, 4, 2, 8)
    assert pool.tensor[1, 0, 2, 1].equal(keys[0]) and pool.tensor[1, 1, 1, 1].equal(-keys[2])
    assert not pool.tensor[0].any()


def test_a_short_read_after_a_long_one_is_not_longer_than_asked() -> None:
    pool = KvPool(load_model_config(tiny_model_dir(TinyModel())), 3, 4, torch.float64)

    shapes = [tuple(pool.read(0, torch.arange(count), pool.tensor.dtype)[1].shape) for count in (9, 2, 12)]

    assert shapes == [(9, 2, 8), (2, 2, 8), (12, 2, 8)]


def test_arrays_are_the_pools_own_memory() -> None:
    pool = KvPool(load_model_config(tiny_model_dir(TinyModel())), 3, 4, torch.float32)
    ones = torch.ones(1, 2, 8)

    pool.write(1, torch.tensor([9]), ones, 2 * ones)

    keys, values = pool.arrays(1)
    assert keys.shape == (3, 4, 2, 8)
    assert (keys[2, 1].min(), keys.sum(), values[2, 1].max(), values.sum()) == (1, 16, 2, 32)


def test_a_pool_of_halves_rounds_what_is_written_and_is_read_in_the_type_that_is_asked_for() -> None:
    pool = KvPool(load_model_config(tiny_model_dir(TinyModel())), 3, 4, torch.float16)
    keys = torch.randn(3, 2, 8, generator=torch.Generator().manual_seed(0))

    pool.write(0, torch.tensor([3, 4, 11]), keys, -keys)
    wide_keys, wide_values = pool.read(0, torch.tensor([11, 3]), torch.float32)
    halves, _ = pool.read(0, torch.tensor([4]), torch.float16)

    assert (wide_keys.dtype, halves.dtype, pool.whole.dtype.name) == (torch.float32, torch.float16, "float16")
    assert wide_keys.equal(keys[[2, 0]].half().float()) and wide_values.equal(-wide_keys)
    assert halves.equal(keys[[1]].half())
