"""Which GPUs the ranks of an engine may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_backend.runner.trtllm_runner.building import visible_gpus
from python_backend.runner.trtllm_runner.settings import TrtllmSettings
from router_backend.core.errors import ConfigError


def settings(first_gpu: int, ranks: int = 2) -> TrtllmSettings:
    return TrtllmSettings(Path("e"), Path("m"), tensor_parallel=ranks, first_gpu=first_gpu)


def test_ranks_from_the_first_gpu_on_see_what_this_process_sees() -> None:
    assert visible_gpus(settings(0), {"CUDA_VISIBLE_DEVICES": "4,5"}) == {}


def test_ranks_from_another_gpu_on_see_theirs_only() -> None:
    assert visible_gpus(settings(2), {}) == {"CUDA_VISIBLE_DEVICES": "2,3"}


def test_numbers_count_among_those_that_this_process_may_see() -> None:
    seen = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}

    assert visible_gpus(settings(1), seen) == {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-c"}


def test_a_gpu_that_it_may_not_see_is_named() -> None:
    with pytest.raises(ConfigError, match="no GPU 3, CUDA_VISIBLE_DEVICES is 4,5,6"):
        visible_gpus(settings(2), {"CUDA_VISIBLE_DEVICES": "4,5,6"})
