"""Field cases of sampling: what a temperature next to nothing means, on half-precision logits."""

from __future__ import annotations

import pytest
import torch

from router_backend.core.request import Sampling
from tests.unit.runner.torch_runner.directories import row
from tests.unit.runner.torch_runner.test_sampler import drawn

LOGITS = torch.tensor([[9.0, 11.0, 10.99, -60000.0], [0.0, 0.0, -1.0, 60000.0]]).half()


@pytest.mark.case("F16")
@pytest.mark.parametrize("temperature", [0.0, 1e-12, 1e-9, 1e-7])
def test_a_temperature_below_a_millionth_is_greedy_in_half_precision(temperature: float) -> None:
    rows = [row([1], sampling=Sampling(temperature, seed=seed)) for seed in (3, 4)]
    assert drawn(LOGITS, rows) == [1, 3]


@pytest.mark.case("F16")
@pytest.mark.parametrize("temperature", [1e-6, 1e-5, 1e-4, 1e-3])
def test_a_small_temperature_draws_a_token_that_can_be(temperature: float) -> None:
    rows = [row([1], sampling=Sampling(temperature, seed=seed)) for seed in (3, 4)]
    first, second = drawn(LOGITS, rows)
    assert (first in (1, 2), second) == (True, 3)
