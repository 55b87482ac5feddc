"""The forward pass of Llama, Qwen2 and Qwen3 over packed tokens.

Owns weights and tables, holds no state of any sequence. Row-wise arithmetic only, attention apart:
what a token's row computes never reads another row.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from python_backend.runner.torch_runner.attention import attend
from python_backend.runner.torch_runner.kv_pool import KvPool
from python_backend.runner.torch_runner.model_config import ModelConfig
from python_backend.runner.torch_runner.packing import PackedStep
from python_backend.runner.torch_runner.parallel import Alone, Collective
from python_backend.runner.torch_runner.rope import rope_table, rotated
from python_backend.runner.torch_runner.weights import LayerWeights, ModelWeights

ALONE = Alone()


class Model:
    """One loaded model; `length_max` bounds the positions it can be asked for."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, length_max: int, group: Collective = ALONE
    ) -> None:
        """`config` and `weights` are this rank's share of the layers."""
        self.config = config
        self._group = group
        self.weights = weights
        table = rope_table(config.rope, config.head_dim, length_max, weights.embed.dtype)
        self.rope = table.to(weights.embed.device)

    @property
    def device(self) -> torch.device:
        return self.weights.embed.device

    def forward(self, step: PackedStep, pool: KvPool) -> Tensor:
        """Hidden [R, E] of the sampling rows after the final norm; writes the step's keys and values."""
        turn = self.rope.index_select(0, step.positions)
        hidden = self.weights.embed.index_select(0, step.tokens)
        for index, layer in enumerate(self.weights.layers):
            queries, keys, values = self._projected(hidden, layer, turn)
            pool.write(index, step.slots, keys, values)
            attended = attend(queries, pool, index, step.groups)
            hidden = hidden + self._group.summed(layer.out(attended))
            hidden = hidden + self._group.summed(self._feed_forward(hidden, layer))
        return self._norm(hidden.index_select(0, step.sampled), self.weights.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """[R, vocab_size] over the real vocabulary, of `hidden` [R, E]."""
        return self.weights.head(hidden)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(hidden, weight.shape, weight, self.config.norm_eps)

    def _projected(self, hidden: Tensor, layer: LayerWeights, turn: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values [T, heads, D], turned by `turn` [T, 2, D] out of the rope table."""
        config = self.config
        turning = config.num_heads + config.num_kv_heads
        qkv = layer.qkv(self._norm(hidden, layer.input_norm))
        heads = qkv.view(hidden.shape[0], turning + config.num_kv_heads, config.head_dim)
        turned = heads[:, :turning]
        if layer.qk_norm is not None:
            turned = rms_norm(turned, turned.shape[-1:], None, config.norm_eps) * layer.qk_norm
        turned = rotated(turned, turn[:, :1], turn[:, 1:])
        return turned[:, : config.num_heads], turned[:, config.num_heads :], heads[:, turning:]

    def _feed_forward(self, hidden: Tensor, layer: LayerWeights) -> Tensor:
        gate, up = layer.gate_up(self._norm(hidden, layer.post_norm)).chunk(2, dim=-1)
        return layer.down(silu(gate) * up)
