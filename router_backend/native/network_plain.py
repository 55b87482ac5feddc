"""A whole step of a decoder in numpy, as plain as can be: what the compiled `Network` must answer.

Differs from it by rounding only (sums in another order). Llama, Qwen2 and Qwen3: attention, then a gated
feed-forward, each behind a root-mean-square norm and added to the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from router_backend.native import kernels_plain
from router_backend.native.kernels_plain import Floats, Longs

Where = tuple[Longs, Longs, Longs]
Elsewhere = Callable[[int, Floats, Floats], None]
"""Takes layer and queries [T, H, D]; writes what the tokens that are not in place attend to, [T, H * D]."""


class Matrix(NamedTuple):
    """Packed weights of y = x W^T + bias; `weights` as `kernels_plain.interleaved` lays them out."""

    format: str
    """single, half (float16 as uint16) or int8"""
    weights: npt.NDArray[Any]
    scales: Floats | None
    """int8: [outputs], and the sums of each output's levels."""
    sums: npt.NDArray[np.int32] | None
    bias: Floats | None
    outputs: int
    inputs: int

    def product(self, x: Floats) -> Floats:
        """[T, outputs] of `x` [T, inputs]."""
        rows = self.weights.transpose(0, 2, 1, 3).reshape(len(self.weights) * kernels_plain.GROUP, -1)
        rows = rows[: self.outputs, : self.inputs]
        if self.format == "int8":
            assert self.scales is not None and self.sums is not None
            rounded = kernels_plain.Int8Weights(rows, self.scales, self.sums)
            product = kernels_plain.linear_int8(rounded, x)
        elif self.format == "half":
            product = kernels_plain.linear_half(np.ascontiguousarray(rows).view(np.float16), x)
        else:
            product = x @ rows.T
        return product if self.bias is None else product + self.bias


class Layer(NamedTuple):
    """H heads, K KV heads, D head_dim, E hidden, F feed-forward."""

    input_norm: Floats
    post_norm: Floats
    qk_norm: Floats | None
    """[H + K, D]"""
    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix


class Shape(NamedTuple):
    heads: int
    kv_heads: int
    feed: int
    epsilon: float


class Tables(NamedTuple):
    embed: Floats
    """[V, E]"""
    turns: Floats
    """[positions, 2, D]: cosines, then sines whose first half is negative."""
    norm: Floats


class StepIndex(NamedTuple):
    """T packed tokens and the R of them whose hidden states are wanted."""

    tokens: Longs
    positions: Longs
    slots: Longs
    sampled: Longs


class Network:
    """Signature and meaning of `_kernels.Network`."""

    def __init__(self, shape: Shape, tables: Tables, layers: Sequence[Layer], head: Matrix) -> None:
        self._shape, self._tables, self._layers, self._head = shape, tables, layers, head

    def forward(
        self, step: StepIndex, where: Where | None, pool: npt.NDArray[Any], elsewhere: Elsewhere | None = None
    ) -> tuple[Floats, Floats]:
        """Hidden [R, E] after the final norm and logits [R, N]; writes the step's keys and values.

        `pool` is [layers, 2, blocks, block_size, K, D], float32 or float16; `where` says what the first
        tokens see (`kernels_plain.paged_attention`), `elsewhere` attends those behind them.
        """
        hidden = self._tables.embed[step.tokens]
        for index, layer in enumerate(self._layers):
            queries = self._placed(hidden, layer, step, pool[index])
            attended = np.empty((len(hidden), queries[0].size), np.float32)
            in_place = 0 if where is None else len(where[1])
            if where is not None:
                keys, values = pool[index].astype(np.float32)
                attended[:in_place] = kernels_plain.paged_attention(queries[:in_place], keys, values, where)
            if in_place < len(hidden):
                assert elsewhere is not None, "nobody attends the tokens that are not in place"
                elsewhere(index, queries, attended)
            hidden = hidden + layer.out.product(attended)
            gate, up = np.split(layer.gate_up.product(self._normed(hidden, layer.post_norm)), 2, axis=1)
            hidden = hidden + layer.down.product(gate / (1 + np.exp(-gate)) * up)
        final = self._normed(hidden[step.sampled], self._tables.norm)
        return final, self._head.product(final)

    def _placed(self, hidden: Floats, layer: Layer, step: StepIndex, pool: npt.NDArray[Any]) -> Floats:
        """Queries [T, H, D] at their positions; keys and values go into the layer's pool."""
        heads, kv_heads, dim = self._shape.heads, self._shape.kv_heads, self._tables.turns.shape[2]
        qkv = layer.qkv.product(self._normed(hidden, layer.input_norm))
        parts = qkv.reshape(len(hidden), heads + 2 * kv_heads, dim)
        turned = parts[:, : heads + kv_heads]
        if layer.qk_norm is not None:
            turned = self._normed(turned, layer.qk_norm)
        turn = self._tables.turns[step.positions]
        turned = turned * turn[:, :1] + np.roll(turned, dim // 2, axis=2) * turn[:, 1:]
        for stored, numbers in zip(pool, (turned[:, heads:], parts[:, heads + kv_heads :]), strict=True):
            stored.reshape(-1, kv_heads, dim)[step.slots] = numbers
        queries: Floats = turned[:, :heads]
        return queries

    def _normed(self, x: Floats, weight: Floats) -> Floats:
        mean = np.square(x).mean(axis=-1, keepdims=True) + np.float32(self._shape.epsilon)
        normed: Floats = x / np.sqrt(mean) * weight
        return normed
