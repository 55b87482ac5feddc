"""The LLM API as far as one token per request needs it: every request computes its whole text anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from network import Network
from paging import PagedStep

from tensorrt_llm._utils import Comm

BLOCK = 4


@dataclass
class KvCacheConfig:
    enable_block_reuse: bool = True
    enable_partial_reuse: bool = False
    copy_on_partial_reuse: bool = False
    max_tokens: int | None = None


@dataclass
class SamplingParams:
    max_tokens: int = 32
    return_generation_logits: bool = False


class LLM:
    def __init__(
        self,
        model: str,
        tensor_parallel_size: int = 1,
        *,
        kv_cache_config: KvCacheConfig,
        max_batch_size: int,
        max_num_tokens: int,
        max_seq_len: int,
        gather_generation_logits: bool = False,
    ) -> None:
        assert tensor_parallel_size == 1 and kv_cache_config.enable_partial_reuse and gather_generation_logits
        self._fields = json.loads((Path(model) / "config.json").read_text())
        plan = {"model_dir": model, "rank": 0, "tp_size": 1, "head_dim": self._fields["head_dim"]}
        self._network = Network({**plan, "layers": self._fields["num_hidden_layers"]}, Comm(Path(), 0, 1))
        self.requests = 0
        self.is_shut_down = False

    def generate_async(self, inputs: dict[str, list[int]], sampling_params: SamplingParams) -> Any:
        assert sampling_params == SamplingParams(1, True)
        self.requests += 1
        text = inputs["prompt_token_ids"]
        if not text:
            raise ValueError("an empty prompt")
        logits = self._network.logits(self._network.hidden(Alone(text, self._fields))[-1:])
        completion = SimpleNamespace(token_ids=[int(logits.argmax())], generation_logits=logits[None])
        return SimpleNamespace(result=lambda: SimpleNamespace(outputs=[completion]))

    def shutdown(self) -> None:
        self.is_shut_down = True


class Alone(PagedStep):
    """One text by itself, over memory of its own."""

    def __init__(self, text: list[int], fields: dict[str, Any]) -> None:
        blocks, layers = -(-len(text) // BLOCK), fields["num_hidden_layers"]
        self.tokens, self.positions = torch.tensor(text), torch.arange(len(text))
        self.counts, self.lengths, self.types = [len(text)], [len(text)], [0]
        self.pool = torch.full(
            (blocks * layers * 2, fields["num_key_value_heads"], BLOCK, fields["head_dim"]), torch.nan
        )
        self.keys = torch.arange(blocks)[None] * 2 * layers
        self.values, self.places = self.keys + 1, list(range(layers))
        self.plan = {"tokens_per_block": BLOCK, "use_paged_context_fmha": True}
