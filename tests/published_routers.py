"""The three published router formats in miniature, with the forward pass of their own code.

Written from the papers' repositories (layer by layer, BatchNorm unfolded, dropout in place) and from
nothing of this project: what a converted head must agree with.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.tiny_models import write_tokenizer

HIDDEN, VOCAB, TOPK = 10, 40, 7
DEFER_ID = VOCAB - 2
"""Not the last row: padded output layers have rows after it."""


class CiterNetwork(nn.Module):
    """torchvision's MLP(H, [2H, H], BatchNorm1d, ReLU, dropout .1), then Linear(H, 1)."""

    def __init__(self, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 2 * hidden),
            nn.BatchNorm1d(2 * hidden),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(2 * hidden, hidden),
            nn.Dropout(0.1),
        )
        self.linear = nn.Linear(hidden, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.sigmoid(self.linear(self.mlp(hidden)))[:, 0]


class ResidualBlock(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(4 * width, outputs),
            nn.Dropout(0.1),
        )
        self.dim_change = nn.Linear(width, outputs) if width != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.dim_change(x)
        return changed + self.mlp(self.layer_norm(x))


class Backbone(nn.Module):
    def __init__(self, widths: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            ResidualBlock(width, after)
            for width, after in zip(widths, (*widths[1:], widths[-1]), strict=True)
        )
        self.input_projection = nn.Linear(widths[0], widths[0])
        self.output_layer = nn.Sequential(nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = self.input_projection(x)
        for block in self.blocks:
            x = block(x)
        answer: Tensor = self.output_layer(x)
        return answer


@dataclass(frozen=True)
class R2RShape:
    widths: tuple[int, ...] = (12, 12, 12)
    outputs: int = 1
    embedding: int = 6


class R2RNetwork(nn.Module):
    """R2R's HiddenStatesTokenLMHeadLogitsClassifier without input normalisation."""

    def __init__(self, shape: R2RShape) -> None:
        super().__init__()
        self.token_embeddings = nn.Embedding(VOCAB, shape.embedding)
        self.logits_projection = nn.Linear(TOPK, HIDDEN)
        self.combined_projection = nn.Linear(2 * HIDDEN + shape.embedding, shape.widths[0])
        self.backbone = Backbone(shape.widths, shape.outputs)

    def forward(self, hidden: Tensor, tokens: Tensor, logits: Tensor) -> Tensor:
        parts = [hidden, self.token_embeddings(tokens), self.logits_projection(logits)]
        answer: Tensor = self.backbone(self.combined_projection(torch.cat(parts, dim=-1)))
        return torch.softmax(answer, -1)[:, 2] if answer.shape[-1] == 3 else torch.sigmoid(answer)[:, 0]


@dataclass(frozen=True)
class Inputs:
    """Rows of a step."""

    hidden: Tensor
    tokens: Tensor
    topk_logits: Tensor


def random_inputs(rows: int = 5, seed: int = 0) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(rows, TOPK, generator=generator)
    return Inputs(
        torch.randn(rows, HIDDEN, generator=generator),
        torch.randint(0, VOCAB, (rows,), generator=generator),
        logits.sort(dim=-1, descending=True).values,
    )


def randomised(network: nn.Module, seed: int = 1) -> nn.Module:
    """Every weight and every running statistic drawn anew; evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                drawn = torch.randn(tensor.shape, generator=generator)
                tensor.copy_(drawn.abs() + 0.1 if name.endswith("running_var") else 0.5 * drawn)
    return network.eval()


def citer_network() -> CiterNetwork:
    network = randomised(CiterNetwork())
    assert isinstance(network, CiterNetwork)
    return network


def r2r_network(shape: R2RShape = R2RShape()) -> R2RNetwork:
    network = randomised(R2RNetwork(shape))
    assert isinstance(network, R2RNetwork)
    return network


def save_citer(network: CiterNetwork, path: Path) -> Path:
    torch.save(network.state_dict(), path)
    return path


def r2r_dict(network: R2RNetwork, has_embedding: bool = False) -> dict[str, Any]:
    state = dict(network.state_dict())
    if not has_embedding:
        del state["token_embeddings.weight"]
    return {
        "model_type": "HiddenStatesTokenLMHeadLogitsClassifier",
        # Wrong on purpose: published templates are, so sizes must come from the tensors.
        "init_args": {"hidden_states_size": 2048, "dtype": torch.float32, "hidden_dims": [1024] * 6},
        "common_args": {"threshold": 0.40596, "input_type": ["hidden_states", "token", "logits"]},
        "model_specific_args": {},
        "state_dict": state,
    }


def save_r2r(network: R2RNetwork, path: Path, has_embedding: bool = False) -> Path:
    torch.save(r2r_dict(network, has_embedding), path)
    return path


def save_co_llm(model_dir: Path, seed: int = 2, has_index: bool = False) -> Tensor:
    """A checkpoint folder whose tokenizer has gained <|defer|>; returns its output layer [VOCAB, HIDDEN]."""
    model_dir.mkdir(parents=True, exist_ok=True)
    write_tokenizer(model_dir, DEFER_ID)
    path = model_dir / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["added_tokens"].append({"id": DEFER_ID, "content": "<|defer|>", "special": True})
    path.write_text(json.dumps(tokenizer))
    layer = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(seed))
    file = "model-00001-of-00001.safetensors" if has_index else "model.safetensors"
    save_file({"lm_head.weight": layer}, model_dir / file)
    if has_index:
        index = {"weight_map": {"lm_head.weight": file}}
        (model_dir / "model.safetensors.index.json").write_text(json.dumps(index))
    return layer
