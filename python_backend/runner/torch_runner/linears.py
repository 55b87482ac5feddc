"""Matrix products with weights that never change, in the number format that a deployment chose.

Each is called with float activations [T, E] and answers [T, N] in the activations' own type. Must never
let a row's numbers depend on another row: int8 activations are scaled row by row. The
project's compiled loops serve where they were built; what torch offers stands in for them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from router_backend.native import kernels
from router_backend.native.kernels_plain import INT8_DEPTH, LEVELS, interleaved, rounded_weights
from router_backend.native.network_plain import Matrix

Linear = Callable[[Tensor], Tensor]
Packer = Callable[[Tensor, Tensor | None], Linear]
"""Takes weight [N, E] and bias [N] or None, both in the activations' type."""


@dataclass(frozen=True, slots=True)
class PlainLinear:
    """torch's own product, for the types that no packed kernel knows."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class ColumnLinear:
    """float32 as W x^T: torch's x W^T is up to three times slower for a few rows."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        product = torch.mm(self.weight, x.t()).t()
        return product if self.bias is None else product + self.bias


class HalfLinear:
    """float16 weights, float32 activations and sums, through fbgemm's packed product.

    fbgemm's AVX2 loops for the last one or two rows sum in another order than those for more, so rows are
    filled up to whole loops: a row's answer is the same in any company.
    """

    __slots__ = ("_bias", "_packed")
    LOOP_ROWS = 6

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._packed = _without_farewells(torch.fbgemm_pack_gemm_matrix_fp16, weight)
        self._bias = weight.new_zeros(weight.shape[0]) if bias is None else bias
        _without_farewells(self, weight[:1])

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        whole = pad(x, (0, 0, 0, -rows % self.LOOP_ROWS))
        product: Tensor = torch.fbgemm_linear_fp16_weight_fp32_activation(whole, self._packed, self._bias)
        return product[:rows]


class Int8Linear:
    """int8 weights, one scale per output, and activations rounded row by row, through fbgemm.

    fbgemm scales a whole batch by its extremes. So every row is brought to the range [-1, 1] first, and
    one more row pins both ends: the scale is the same in any company.
    """

    __slots__ = ("_bias", "_packed", "_pin")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        scales = (weight.abs().amax(dim=1) / LEVELS).clamp_min(torch.finfo(torch.float32).tiny).double()
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        rounded = _without_farewells(torch.quantize_per_channel, weight, scales, zeros, 0, torch.qint8)
        self._packed = _without_farewells(torch.ops.quantized.linear_prepack, rounded, None)
        self._bias = bias
        self._pin = pad(torch.tensor([[1.0, -1.0]]), (0, weight.shape[1] - 2))
        _without_farewells(self, weight[:1])

    def __call__(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(dim=1, keepdim=True)
        level = torch.cat([x / largest.clamp_min(torch.finfo(torch.float32).tiny), self._pin])
        # 7 bits of activations: 8 would overflow the 16-bit sums of processors without VNNI.
        product: Tensor = torch.ops.quantized.linear_dynamic(level, self._packed, True)[:-1] * largest
        return product if self._bias is None else product + self._bias


def _without_farewells(packing: Callable[..., Any], *arguments: Any) -> Any:
    """The result, without torch's notice, given once, that fbgemm's operators will leave some day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return packing(*arguments)


class NativeLinear:
    """A compiled product. `matrix` is what a compiled step takes of it."""

    __slots__ = ("_bias", "_threads", "matrix")

    def __init__(self, matrix: Matrix, bias: Tensor | None, threads: int) -> None:
        self.matrix = matrix._replace(bias=None if bias is None else bias.numpy())
        self._bias, self._threads = bias, threads

    def __call__(self, x: Tensor) -> Tensor:
        product = x.new_empty((x.shape[0], self.matrix.outputs))
        self._run(x.contiguous().numpy(), product.numpy())
        return product if self._bias is None else product.add_(self._bias)

    def _run(self, x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> None:
        native, own = kernels.compiled(), self.matrix
        assert native is not None
        if own.format == "int8":
            native.linear_int8(own.weights, own.scales, own.sums, x, (y, self._threads))
        elif own.format == "half":
            native.linear_half(own.weights, x, y, self._threads)
        else:
            native.linear_single(own.weights, x, y, self._threads)


def pack_single(weight: Tensor, bias: Tensor | None) -> Linear:
    """float32 weights."""
    if kernels.compiled() is None:
        return ColumnLinear(weight, bias)
    matrix = Matrix("single", interleaved(weight.numpy()), None, None, None, *weight.shape)
    return NativeLinear(matrix, bias, torch.get_num_threads())


def pack_half(weight: Tensor, bias: Tensor | None) -> Linear:
    """float16 weights, float32 sums."""
    if kernels.compiled() is None:
        return HalfLinear(weight, bias)
    packed = interleaved(weight.half().numpy()).view(np.uint16)
    return NativeLinear(
        Matrix("half", packed, None, None, None, *weight.shape), bias, torch.get_num_threads()
    )


def pack_int8(weight: Tensor, bias: Tensor | None) -> Linear:
    """int8 weights, one scale per output, and int8 activations, one scale per row; exact sums."""
    if kernels.compiled() is None:
        return Int8Linear(weight, bias)
    levels, scales, sums = rounded_weights(weight.numpy())
    matrix = Matrix("int8", interleaved(levels, INT8_DEPTH), scales, sums, None, *weight.shape)
    return NativeLinear(matrix, bias, torch.get_num_threads())


@dataclass(frozen=True, slots=True)
class Precision:
    """`activations` is the type of everything but the packed weights and what the KV cache holds."""

    activations: torch.dtype
    packed: Packer
    cache: torch.dtype


PRECISIONS = MappingProxyType(
    {
        "float32": Precision(torch.float32, pack_single, torch.float32),
        "float64": Precision(torch.float64, PlainLinear, torch.float64),
        "bfloat16": Precision(torch.bfloat16, PlainLinear, torch.bfloat16),
        "float16": Precision(torch.float32, pack_half, torch.float16),
        "int8": Precision(torch.float32, pack_int8, torch.float16),
    }
)
GPU_PRECISIONS = MappingProxyType(
    {
        "float32": Precision(torch.float32, PlainLinear, torch.float32),
        "bfloat16": Precision(torch.bfloat16, PlainLinear, torch.bfloat16),
        "float16": Precision(torch.float16, PlainLinear, torch.float16),
    }
)
