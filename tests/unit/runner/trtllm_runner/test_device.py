"""Which GPU a rank takes. No GPU is touched: torch's answers are given here."""

from __future__ import annotations

import pytest
import torch

from python_backend.runner.trtllm_runner.device import chosen_device
from router_backend.core.errors import ConfigError


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Two GPUs; the devices that were made current."""
    made: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", made.append)
    return made


def test_a_gpu_is_made_current(current: list[int]) -> None:
    assert [chosen_device(gpu) for gpu in (0, 1)] == [torch.device("cuda", 0), torch.device("cuda", 1)]
    assert current == [0, 1]


def test_a_gpu_that_is_not_there_is_named(current: list[int]) -> None:
    with pytest.raises(ConfigError, match="device, tensor_parallel: there is no GPU 2, 2 can be seen"):
        chosen_device(2)


def test_without_a_gpu_the_emulator_runs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert chosen_device(1) == torch.device("cpu")
