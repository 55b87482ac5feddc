"""A device's total memory, and the refusal of one that is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from python_backend.runner.torch_runner import devices
from python_backend.runner.torch_runner.devices import refuse_absent, usable_bytes
from router_backend.core.errors import ConfigError


def test_auto_on_the_cpu_is_half_of_the_machine_or_of_its_control_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine, group, unlimited = (tmp_path / name for name in ("meminfo", "memory.max", "old"))
    machine.write_text("MemFree: 1 kB\nMemTotal:    8388608 kB\n")
    unlimited.write_text("9223372036854771712\n")
    monkeypatch.setattr(devices, "MEMORY_INFO", machine)
    monkeypatch.setattr(devices, "GROUP_LIMITS", (group, unlimited))

    assert usable_bytes("cpu") == 4 << 30
    group.write_text("max\n")
    assert usable_bytes("cpu") == 4 << 30
    group.write_text(f"{2 << 30}\n")
    assert usable_bytes("cpu") == 1 << 30


def test_large_pages_are_asked_for_unless_somebody_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    for decided, value in ((None, "1"), ("0", "0")):
        monkeypatch.delenv(devices.LARGE_PAGES_KEY, raising=False)
        if decided is not None:
            monkeypatch.setenv(devices.LARGE_PAGES_KEY, decided)
        devices.ask_for_large_pages()
        assert os.environ[devices.LARGE_PAGES_KEY] == value


def test_a_gpu_that_is_not_there_is_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)

    with pytest.raises(
        ConfigError, match=r"device: cuda: torch .* is built without CUDA; install PyTorch's CUDA"
    ):
        refuse_absent("cuda")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    with pytest.raises(ConfigError, match=r"device: cuda:1: no GPU is visible \(CUDA 12.8\)"):
        usable_bytes("cuda:1")


def test_a_gpu_beyond_the_last_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    refuse_absent("cuda")
    with pytest.raises(ConfigError, match="device: cuda:1: this machine has 1 GPU"):
        refuse_absent("cuda:1")
