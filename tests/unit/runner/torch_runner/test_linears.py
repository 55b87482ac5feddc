"""Packed products: close to the exact one, and each row's numbers its own."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from python_backend.runner.torch_runner.linears import (
    PRECISIONS,
    ColumnLinear,
    HalfLinear,
    Int8Linear,
    Packer,
)
from router_backend.native import kernels

ROWS, INPUTS, OUTPUTS = 9, 70, 50
RELATIVE_ERROR_MAX = {"float64": 1e-15, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2, "int8": 2e-2}
STAND_INS = {"float32 in torch": ColumnLinear, "float16 in torch": HalfLinear, "int8 in torch": Int8Linear}
"""What serves where the compiled loops were not built."""
FORMATS = [*PRECISIONS, *STAND_INS]
every_format = pytest.mark.parametrize("name", FORMATS)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def packer(name: str) -> tuple[Packer, torch.dtype]:
    if name in STAND_INS:
        return STAND_INS[name], torch.float32
    return PRECISIONS[name].packed, PRECISIONS[name].activations


@every_format
@pytest.mark.parametrize("has_bias", [True, False])
def test_each_format_is_as_close_to_the_exact_product_as_its_width_allows(name: str, has_bias: bool) -> None:
    packed, activations = packer(name)
    weight, bias = drawn(OUTPUTS, INPUTS), drawn(OUTPUTS, seed=1) if has_bias else None
    x = drawn(ROWS, INPUTS, seed=2)
    exact = x @ weight.T + (0 if bias is None else bias)

    linear = packed(weight.to(activations), None if bias is None else bias.to(activations))
    answer = linear(x.to(activations))

    assert (answer.shape, answer.dtype) == ((ROWS, OUTPUTS), activations)
    assert (answer.double() - exact).norm() / exact.norm() < RELATIVE_ERROR_MAX[name.split()[0]]


@pytest.mark.parametrize("name", ["float32", "float16", "int8", "float16 in torch", "int8 in torch"])
def test_a_row_of_a_packed_product_is_the_same_alone_and_beside_a_giant(name: str) -> None:
    packed, activations = packer(name)
    linear = packed(drawn(OUTPUTS, INPUTS).to(activations), None)
    x = drawn(ROWS, INPUTS, seed=2).to(activations)
    x[3] *= 1e4

    together = linear(x)

    assert all(torch.equal(linear(x[index : index + 1])[0], together[index]) for index in range(ROWS))


@pytest.mark.parametrize("name", ["float32", "float16", "int8", "float16 in torch", "int8 in torch"])
def test_a_row_is_the_same_in_a_batch_of_any_size(name: str) -> None:
    packed, activations = packer(name)
    linear = packed(drawn(OUTPUTS, INPUTS).to(activations), None)
    x = drawn(40, INPUTS, seed=2).to(activations)

    together = linear(x)

    assert all(torch.equal(linear(x[:size]), together[:size]) for size in range(1, 40))


@every_format
def test_a_row_of_nan_or_zero_harms_no_other(name: str) -> None:
    packed, activations = packer(name)
    linear = packed(drawn(OUTPUTS, INPUTS).to(activations), None)
    x = drawn(3, INPUTS, seed=2).to(activations)
    healthy = linear(x)
    x[0], x[2, 5] = 0.0, math.nan

    answer = linear(x)

    assert answer[0].eq(0).all() and answer[2].isnan().all()
    torch.testing.assert_close(answer[1], healthy[1])


@every_format
def test_a_weight_row_of_zeros_answers_zero(name: str) -> None:
    packed, activations = packer(name)
    weight = drawn(OUTPUTS, INPUTS).to(activations)
    weight[7] = 0.0

    assert packed(weight, None)(drawn(2, INPUTS).to(activations))[:, 7].eq(0).all()


@every_format
def test_packing_and_computing_warn_nobody(name: str) -> None:
    packed, activations = packer(name)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        packed(drawn(4, 6).to(activations), None)(drawn(2, 6).to(activations))

    assert seen == []


@every_format
def test_a_prompt_is_multiplied_as_a_batch_is(name: str) -> None:
    packed, activations = packer(name)
    linear = packed(drawn(OUTPUTS, INPUTS).to(activations), drawn(OUTPUTS, seed=1).to(activations))
    x = drawn(150, INPUTS, seed=2).to(activations)

    torch.testing.assert_close(linear(x)[:3], linear(x[:3]))


@pytest.mark.parametrize(
    ("name", "stand_in"), [("float32", ColumnLinear), ("float16", HalfLinear), ("int8", Int8Linear)]
)
def test_torch_stands_in_where_nothing_was_compiled(
    name: str, stand_in: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_compiled", None)

    assert type(PRECISIONS[name].packed(drawn(4, 6).float(), None)) is stand_in
