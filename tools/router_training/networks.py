"""The heads as trainable networks, with the keys of the artefact's tensors as parameter names.

Each answers float32[N] logits of "the large model should write this"; `artefact` turns that into what
the published rule compares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tools.router_training.collecting import Samples


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes that follow from the small model, and the two that are chosen (R2R publishes 1024 and 6)."""

    hidden_size: int
    topk: int
    width: int = 128
    blocks: int = 2


class CiterHead(nn.Module):
    """CITER's MLP. Its published rule compares confidence, so the artefact's last layer is the negative."""

    algorithm, kind = "citer", "citer_mlp"

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.hidden_size, 2 * shape.hidden_size)
        self.output = nn.Linear(2 * shape.hidden_size, 1)

    def forward(self, samples: Samples) -> Tensor:
        logits: Tensor = self.output(torch.relu(self.up(samples.hidden)))[:, 0]
        return logits

    def artefact(self) -> dict[str, Tensor]:
        state = {name: tensor.detach().clone() for name, tensor in self.state_dict().items()}
        return {name: -tensor if name.startswith("output.") else tensor for name, tensor in state.items()}


class Block(nn.Module):
    """x + mlp(norm(x))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(width)
        up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mlp = nn.Sequential(up, nn.GELU(), nn.Dropout(0.1), down, nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.mlp(self.layer_norm(x))
        return x + changed


class Backbone(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.input_projection = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(shape.blocks))
        self.output_layer = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.input_projection(x)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.output_layer(x)
        return logits[:, 0]


class R2RHead(nn.Module):
    """R2R's classifier on hidden state, embedding of the sampled token and sorted logits."""

    algorithm, kind = "r2r", "r2r_classifier"

    def __init__(self, shape: Shape, embedding: Tensor) -> None:
        """`embedding` [V, E] is the small model's; it is not trained and not part of the artefact."""
        super().__init__()
        self._embedding = embedding
        self.logits_projection = nn.Linear(shape.topk, shape.hidden_size)
        joined = 2 * shape.hidden_size + embedding.shape[1]
        self.combined_projection = nn.Linear(joined, shape.width)
        self.backbone = Backbone(shape)

    def forward(self, samples: Samples) -> Tensor:
        embedded = self._embedding[samples.tokens]
        parts = [samples.hidden, embedded, self.logits_projection(samples.topk_logits)]
        logits: Tensor = self.backbone(self.combined_projection(torch.cat(parts, dim=-1)))
        return logits

    def artefact(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self.state_dict().items()}


Head = CiterHead | R2RHead
