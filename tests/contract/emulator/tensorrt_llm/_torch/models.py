"""A model whose attention finds its metadata where custom operators do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from network import Network

from tensorrt_llm._torch.attention_backend.utils import Metadata, MetadataStep
from tensorrt_llm._torch.model_config import ModelConfig
from tensorrt_llm._torch.utils import current
from tensorrt_llm._utils import Comm

PADDING_LOGIT = 1e4


class Model(torch.nn.Module):
    """`model` answers hidden states of all tokens, `lm_head` logits of some, padded."""

    def __init__(self, checkpoint_dir: str) -> None:
        super().__init__()
        self.finished, self._folder = False, checkpoint_dir

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        fields = json.loads((Path(self._folder) / "config.json").read_text())
        plan = {"model_dir": self._folder, "rank": 0, "tp_size": 1}
        plan |= {"head_dim": fields["head_dim"], "layers": fields["num_hidden_layers"]}
        self._network = Network(plan, Comm(Path(), 0, 1))
        assert set(weights) == set(self._network.names)

    def post_load_weights(self) -> None:
        self.finished = True

    def model(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, attn_metadata: Metadata
    ) -> torch.Tensor:
        assert self.finished and attn_metadata.is_prepared
        assert current[-1]["attention_metadata"]() is attn_metadata
        assert input_ids.dtype == torch.int32 and position_ids.shape == (1, len(input_ids))
        return self._network.hidden(MetadataStep(attn_metadata, input_ids, position_ids[0])).float()

    def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(self._network.logits(hidden.double()), (0, 32), value=PADDING_LOGIT)


class AutoModelForCausalLM:
    @staticmethod
    def from_config(config: ModelConfig) -> Any:
        return Model(config.checkpoint_dir)
