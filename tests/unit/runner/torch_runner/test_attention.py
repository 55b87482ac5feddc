"""Attention read in place equals attention over gathered copies."""

from __future__ import annotations

import pytest
import torch

from python_backend.runner.torch_runner.attention import attend
from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.model_config import load_model_config
from python_backend.runner.torch_runner.packing import Layout, pack
from router_backend.native import kernels
from tests.tiny_models import TinyModel, tiny_model_dir
from tests.unit.runner.torch_runner.directories import row

CONFIG = load_model_config(tiny_model_dir(TinyModel()))


@pytest.mark.skipif(kernels._compiled is None, reason="the native kernels are not built")
@pytest.mark.parametrize("cache", [torch.float32, torch.float16])
def test_rows_attended_in_place_get_what_gathered_ones_get(cache: torch.dtype) -> None:
    pool = KvPool(CONFIG, 60, 4, cache)
    pool.tensor.copy_(torch.randn(pool.tensor.shape, generator=torch.Generator().manual_seed(1)))
    rows = [
        row([1], start=70, blocks=range(20, 38)),
        row([1, 2, 3], start=2, blocks=[7, 3]),
        row(range(30), start=9, blocks=range(40, 50)),
    ]
    queries = torch.randn(34, 4, 8, generator=torch.Generator().manual_seed(2))

    in_place, gathered = (
        attend(queries, pool, 1, pack(rows, Layout(4, 2, torch.float32, is_paged)).groups)
        for is_paged in (True, False)
    )

    assert in_place.shape == (34, 32)
    torch.testing.assert_close(in_place, gathered)
