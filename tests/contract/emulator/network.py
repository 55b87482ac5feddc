"""The tiny decoder inside an emulated engine: Llama, Qwen2, Qwen3 out of a Hugging Face directory.

Written for itself, in float64 over float32 keys and values, one row at a time; with several ranks each
holds its share of heads and of the feed-forward, and the shares are added as NCCL would.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from paging import PagedStep
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear, silu

WIDE = torch.float64


class Network:
    """`plan` says which directory and which share of how many."""

    def __init__(self, plan: dict[str, Any], comm: Any) -> None:
        folder = Path(plan["model_dir"])
        self.config = json.loads((folder / "config.json").read_text())
        self._weights = {
            name: tensor.to(WIDE)
            for file in folder.glob("*.safetensors")
            for name, tensor in load_file(file).items()
        }
        self._rank, self._size, self._comm = plan["rank"], plan["tp_size"], comm
        self._head_dim, self._layers = plan["head_dim"], plan["layers"]
        rope = self.config.get("rope_parameters") or self.config
        turns = torch.arange(0, self._head_dim, 2, dtype=WIDE) / self._head_dim
        self._frequencies = float(rope.get("rope_theta", 10000.0)) ** -turns

    @property
    def names(self) -> tuple[str, ...]:
        """Of the tensors in the directory."""
        return tuple(self._weights)

    def hidden(self, step: PagedStep) -> Tensor:
        """[N, E] after the final norm; writes the step's keys and values."""
        x = self._weights["model.embed_tokens.weight"][step.tokens]
        for layer in range(self._layers):
            name = f"model.layers.{layer}."
            x = x + self._comm.summed(self._attention(self._norm(x, name + "input_layernorm"), layer, step))
            x = x + self._comm.summed(
                self._feed(self._norm(x, name + "post_attention_layernorm"), name + "mlp.")
            )
        return self._norm(x, "model.norm")

    def logits(self, hidden: Tensor) -> Tensor:
        tied = self._weights["model.embed_tokens.weight"]
        return linear(hidden, self._weights.get("lm_head.weight", tied)).float()

    def _norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self._weights[name + ".weight"]

    def _share(self, tensor: Tensor, dim: int = 0) -> Tensor:
        return tensor.chunk(self._size, dim)[self._rank]

    def _feed(self, x: Tensor, name: str) -> Tensor:
        gate, up = (
            linear(x, self._share(self._weights[f"{name}{part}_proj.weight"])) for part in ("gate", "up")
        )
        return linear(silu(gate) * up, self._share(self._weights[name + "down_proj.weight"], 1))

    def _heads(self, x: Tensor, name: str, positions: Tensor | None) -> Tensor:
        """[heads, N, D], turned by position if there is one."""
        bias = self._weights.get(name + "_proj.bias")
        flat = linear(
            x, self._share(self._weights[name + "_proj.weight"]), None if bias is None else self._share(bias)
        )
        heads = flat.view(len(x), -1, self._head_dim)
        if name + "_norm.weight" in self._weights:
            heads = self._norm(heads, name + "_norm")
        return heads.transpose(0, 1) if positions is None else self._turned(heads.transpose(0, 1), positions)

    def _turned(self, heads: Tensor, positions: Tensor) -> Tensor:
        angles = (positions[:, None] * self._frequencies).repeat(1, 2)
        left, right = heads.chunk(2, -1)
        return heads * angles.cos() + torch.cat([-right, left], -1) * angles.sin()

    def _attention(self, x: Tensor, layer: int, step: PagedStep) -> Tensor:
        name = f"model.layers.{layer}.self_attn."
        queries, keys = (self._heads(x, name + part, step.positions) for part in "qk")
        values = self._heads(x, name + "v", None)
        answers, begin = [], 0
        for row, count in enumerate(step.counts):
            own = slice(begin, begin + count)
            step.write(row, layer, torch.stack([keys[:, own], values[:, own]]).float())
            answers.append(self._attended(queries[:, own], layer, row, step))
            begin += count
        return linear(torch.cat(answers), self._share(self._weights[name + "o_proj.weight"], 1))

    def _attended(self, queries: Tensor, layer: int, row: int, step: PagedStep) -> Tensor:
        """[tokens, heads * D]: each query sees its past and itself, nothing else of the memory is read."""
        length, count = step.lengths[row], step.counts[row]
        first = length - count - step.past(row)
        keys, values = step.kv(row, layer)[:, :, first:length].to(WIDE)
        group = len(queries) // len(keys)
        keys, values = (side.repeat_interleave(group, 0) for side in (keys, values))
        scores = queries @ keys.transpose(1, 2) / self._head_dim**0.5
        seen = torch.ones(count, length - first, dtype=torch.bool).tril(length - first - count)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        return (weights @ values).transpose(0, 1).reshape(count, -1)
