"""The networks behind the scores, as functions of tensors that are already on the device.

Each class takes its weights from a `NamedTensors` (the keys of `router.safetensors`), reads every size from
a shape, and answers float32[R] probabilities in float32 arithmetic. No dropout, no batch statistics:
a row's score never depends on the other rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from python_backend.runner.heads.named_tensors import NamedTensors
from router_backend.core.errors import ConfigError

DIVERGENT = 2
"""Class of the three-class R2R head that is routed."""


class Affine(NamedTuple):
    """y = x W^T + b."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def take(cls, tensors: NamedTensors, prefix: str, inputs: int) -> Affine:
        """`prefix`.weight [any, inputs] and `prefix`.bias [any]."""
        outputs = tensors.shape(f"{prefix}.weight", 2)[0]
        return cls(tensors.take(f"{prefix}.weight", outputs, inputs), tensors.take(f"{prefix}.bias", outputs))

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def to(self, device: torch.device) -> Affine:
        return Affine(self.weight.to(device), self.bias.to(device))


class Norm(NamedTuple):
    """Layer normalisation over the last dimension, epsilon 1e-5."""

    weight: Tensor
    bias: Tensor

    @classmethod
    def take(cls, tensors: NamedTensors, prefix: str, size: int) -> Norm:
        return cls(tensors.take(f"{prefix}.weight", size), tensors.take(f"{prefix}.bias", size))

    def __call__(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight.shape, self.weight, self.bias)

    def to(self, device: torch.device) -> Norm:
        return Norm(self.weight.to(device), self.bias.to(device))


@dataclass(frozen=True, slots=True)
class CiterMlp:
    """sigmoid(output(relu(up(hidden)))): CITER's MLP, its BatchNorm and its last two layers folded.

    `up.weight` [F, H], `output.weight` [1, F], with biases.
    """

    up: Affine
    output: Affine

    @classmethod
    def take(cls, tensors: NamedTensors, hidden_size: int) -> CiterMlp:
        up = Affine.take(tensors, "up", hidden_size)
        return cls(up, _single(tensors, "output", up.outputs))

    def to(self, device: torch.device) -> CiterMlp:
        return CiterMlp(self.up.to(device), self.output.to(device))

    def __call__(self, hidden: Tensor) -> Tensor:
        return torch.sigmoid(self.output(torch.relu(self.up(hidden.float()))))[:, 0]


@dataclass(frozen=True, slots=True)
class DeferRow:
    """sigmoid(hidden . row): the extra row of Co-LLM's output layer, `row` [H]."""

    row: Tensor

    @classmethod
    def take(cls, tensors: NamedTensors, hidden_size: int) -> DeferRow:
        return cls(tensors.take("row", hidden_size))

    def to(self, device: torch.device) -> DeferRow:
        return DeferRow(self.row.to(device))

    def __call__(self, hidden: Tensor) -> Tensor:
        return torch.sigmoid(hidden.float() @ self.row)


@dataclass(frozen=True, slots=True)
class Block:
    """x + mlp(norm(x)), with a projection of x where the width changes."""

    norm: Norm
    up: Affine
    down: Affine
    change: Affine | None

    @classmethod
    def take(cls, tensors: NamedTensors, prefix: str, width: int) -> Block:
        norm = Norm.take(tensors, f"{prefix}.layer_norm", width)
        up = Affine.take(tensors, f"{prefix}.mlp.0", width)
        down = Affine.take(tensors, f"{prefix}.mlp.3", up.outputs)
        if down.outputs == width:
            return cls(norm, up, down, None)
        change = Affine.take(tensors, f"{prefix}.dim_change", width)
        if change.outputs != down.outputs:
            wrong = f"{prefix}.dim_change.weight: {change.outputs} outputs where {down.outputs} are needed"
            raise ConfigError(f"{tensors.source}: {wrong}")
        return cls(norm, up, down, change)

    def to(self, device: torch.device) -> Block:
        change = self.change.to(device) if self.change else None
        return Block(self.norm.to(device), self.up.to(device), self.down.to(device), change)

    def __call__(self, x: Tensor) -> Tensor:
        kept = self.change(x) if self.change else x
        return kept + self.down(gelu(self.up(self.norm(x))))


@dataclass(frozen=True, slots=True)
class R2RClassifier:
    """R2R's `HiddenStatesTokenLMHeadLogitsClassifier` with the published keys, less the embedding.

    One output is a logit; of three, the last class of a softmax.
    """

    logits_projection: Affine
    combined_projection: Affine
    input_projection: Affine
    blocks: tuple[Block, ...]
    norm: Norm
    output: Affine

    @classmethod
    def take(cls, tensors: NamedTensors, hidden_size: int, embedding_size: int) -> R2RClassifier:
        topk = tensors.shape("logits_projection.weight", 2)[1]
        logits = Affine.take(tensors, "logits_projection", topk)
        joined = hidden_size + embedding_size + logits.outputs
        combined = Affine.take(tensors, "combined_projection", joined)
        entry = Affine.take(tensors, "backbone.input_projection", combined.outputs)
        blocks: list[Block] = []
        width = entry.outputs
        while f"backbone.blocks.{len(blocks)}.layer_norm.weight" in tensors:
            blocks.append(Block.take(tensors, f"backbone.blocks.{len(blocks)}", width))
            width = blocks[-1].down.outputs
        norm = Norm.take(tensors, "backbone.output_layer.0", width)
        output = Affine.take(tensors, "backbone.output_layer.1", width)
        if output.outputs not in (1, DIVERGENT + 1):
            wrong = f"backbone.output_layer.1.weight: {output.outputs} outputs, only 1 or 3 are known"
            raise ConfigError(f"{tensors.source}: {wrong}")
        return cls(logits, combined, entry, tuple(blocks), norm, output)

    @property
    def topk(self) -> int:
        return self.logits_projection.weight.shape[1]

    def to(self, device: torch.device) -> R2RClassifier:
        return R2RClassifier(
            self.logits_projection.to(device),
            self.combined_projection.to(device),
            self.input_projection.to(device),
            tuple(block.to(device) for block in self.blocks),
            self.norm.to(device),
            self.output.to(device),
        )

    def __call__(self, hidden: Tensor, embedded: Tensor, topk_logits: Tensor) -> Tensor:
        logits = self.logits_projection(topk_logits.float())
        joined = torch.cat([hidden.float(), embedded.float(), logits], dim=-1)
        x = self.input_projection(self.combined_projection(joined))
        for block in self.blocks:
            x = block(x)
        answer = self.output(self.norm(x))
        if self.output.outputs == 1:
            return torch.sigmoid(answer)[:, 0]
        return torch.softmax(answer, dim=-1)[:, DIVERGENT]


def _single(tensors: NamedTensors, prefix: str, inputs: int) -> Affine:
    weight = tensors.take(f"{prefix}.weight", 1, inputs)
    return Affine(weight, tensors.take(f"{prefix}.bias", 1))
