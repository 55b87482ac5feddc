"""Where the tensors of a step lie: the rank's GPU, or the CPU under the emulator.

Contract-tested; unverified on hardware until tools.check_trtllm has run. The invariant: one copy takes all
small inputs of a step to the device, and every slice of it starts on a boundary that kernels accept.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from router_backend.core.errors import ConfigError

ALIGNMENT_WORDS = 64
"""256 bytes of int32."""


class Device:
    """Streams and copies. On a CPU a step has ended when it was enqueued."""

    def __init__(self, words: int, gpu: int) -> None:
        """`words`: room for the int32 inputs of the largest step, `aligned_words` of each."""
        self.torch = chosen_device(gpu)
        self.is_gpu = self.torch.type == "cuda"
        self._host = torch.zeros(words, dtype=torch.int32, pin_memory=self.is_gpu)
        self._there = torch.zeros(words, dtype=torch.int32, device=self.torch) if self.is_gpu else self._host

    @property
    def stream(self) -> int:
        """The handle that a step is enqueued on."""
        return int(torch.cuda.current_stream().cuda_stream) if self.is_gpu else 0

    def synchronize(self) -> None:
        if self.is_gpu:
            torch.cuda.current_stream().synchronize()

    def staged(self, values: Mapping[str, npt.NDArray[np.int32]]) -> dict[str, Tensor]:
        """The arrays on the device; valid until the next call, which must not come before the step ended."""
        begin, places = 0, dict[str, Tensor]()
        for name, array in values.items():
            end = begin + array.size
            self._host[begin:end] = torch.from_numpy(array.reshape(-1))
            places[name] = self._there[begin:end].view(array.shape)
            begin = aligned_words(end)
        if self.is_gpu:
            self._there[:begin].copy_(self._host[:begin], non_blocking=True)
        return places


def chosen_device(gpu: int) -> torch.device:
    """The GPU of that number, made the current one: TensorRT puts an engine where the current device is.

    ConfigError when this process sees too few; the CPU when it sees none, which only the emulator can use.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if gpu >= seen:
        raise ConfigError(
            f"device, tensor_parallel: there is no GPU {gpu}, {seen} can be seen (CUDA_VISIBLE_DEVICES)"
        )
    torch.cuda.set_device(gpu)
    return torch.device("cuda", gpu)


def aligned_words(words: int) -> int:
    """The next boundary."""
    return -(-words // ALIGNMENT_WORDS) * ALIGNMENT_WORDS
