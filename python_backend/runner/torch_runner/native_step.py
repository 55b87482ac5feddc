"""A whole step in one compiled call, for an engine that is alone on a CPU.

`Model.forward` is the same in torch's operators; there each step passes the interpreter some twenty times
in every layer, which for a small model takes longer than its arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from python_backend.runner.torch_runner.attention import attend_group
from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.linears import NativeLinear
from python_backend.runner.torch_runner.model_config import ModelConfig
from python_backend.runner.torch_runner.packing import Group, PackedStep, PagedGroup
from python_backend.runner.torch_runner.weights import LayerWeights, ModelWeights
from router_backend.native import kernels
from router_backend.native.kernels_plain import Floats
from router_backend.native.network_plain import Elsewhere, Layer, Matrix, Shape, StepIndex, Tables


class NativeStep:
    """The weights of one model as the compiled loops take them; shares their memory."""

    __slots__ = ("_hidden_size", "_network", "_threads", "_vocab_size")

    def __init__(self, config: ModelConfig, weights: ModelWeights, rope: Tensor) -> None:
        """`rope` is the table of `rope_table`; the linears are `NativeLinear`s."""
        native = kernels.compiled()
        assert native is not None
        shape = Shape(config.num_heads, config.num_kv_heads, config.intermediate_size, config.norm_eps)
        tables = Tables(weights.embed.numpy(), rope.numpy(), weights.norm.numpy())
        head = _matrix(weights.head)
        self._network = native.Network(shape, tables, [_layer(layer) for layer in weights.layers], head)
        self._hidden_size, self._vocab_size = config.hidden_size, head.outputs
        self._threads = torch.get_num_threads()

    def run(self, step: PackedStep, pool: KvPool) -> tuple[Tensor, Tensor]:
        """Hidden [R, E] after the final norm and logits [R, vocab_size] of the sampling rows."""
        count = len(step.sampled)
        hidden, logits = torch.empty((count, self._hidden_size)), torch.empty((count, self._vocab_size))
        index = StepIndex(*(part.numpy() for part in (step.tokens, step.positions, step.slots, step.sampled)))
        in_place = step.groups[0] if isinstance(step.groups[0], PagedGroup) else None
        self._network.forward(
            index,
            None if in_place is None else in_place.where,
            pool.whole,
            (hidden.numpy(), logits.numpy()),
            _elsewhere(step, pool),
            self._threads,
        )
        return hidden, logits


def _elsewhere(step: PackedStep, pool: KvPool) -> Elsewhere | None:
    """Attention of the groups that are gathered; they lie behind the one that is read in place."""
    groups = [group for group in step.groups if isinstance(group, Group)]
    if not groups:
        return None

    def attend(layer: int, queries: Floats, attended: Floats) -> None:
        given, answer = torch.from_numpy(queries), torch.from_numpy(attended)
        for group in groups:
            answer[group.first : group.last] = attend_group(
                given[group.first : group.last], pool, layer, group
            )

    return attend


def _layer(layer: LayerWeights) -> Layer:
    qk_norm = None if layer.qk_norm is None else layer.qk_norm.contiguous().numpy()
    linears = (layer.qkv, layer.out, layer.gate_up, layer.down)
    matrices = [_matrix(linear) for linear in linears]
    return Layer(layer.input_norm.numpy(), layer.post_norm.numpy(), qk_norm, *matrices)


def _matrix(linear: Any) -> Matrix:
    assert isinstance(linear, NativeLinear), f"{linear} is not compiled"
    return linear.matrix
