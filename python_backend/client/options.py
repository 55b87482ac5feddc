"""What a caller may ask for, as one value.

Names are those of the door's tensors; None means that the server decides. Values are the server's to check.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

Prompt = str | Sequence[Mapping[str, Any]]
"""A text, or a chat as OpenAI writes it, for the model's own template."""
Scalar = str | bool | int | float


@dataclass(frozen=True, slots=True)
class Options:
    """How a request is to be answered."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None
    """Report each token's log-probability, and so many likeliest tokens beside it."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    """Shown to the model by its chat template."""
    policy: str | None = None
    """Routing algorithm of this request."""
    policy_params: Mapping[str, Scalar] = field(default_factory=dict)
    """Its parameters, such as {"cutoff": 0.2}; of the server's own policy when `policy` is None."""
    timeout_s: float | None = None
    """Longest time for the whole answer; default: the client's."""


ANY = Options()
_JSON = {"policy_params": "routing_config", "logit_bias": "logit_bias", "tools": "tools"}
_RENAMED = {"policy": "routing_algorithm"}
_RETURNS = ("return_finish_reason", "return_num_input_tokens", "return_routing", "return_seed")


def tensors(prompt: Prompt, options: Options, is_streaming: bool) -> dict[str, Scalar | tuple[str, ...]]:
    """The inputs of one request by name."""
    asked: dict[str, Any] = {"stream": is_streaming, **dict.fromkeys(_RETURNS, True), **_prompt(prompt)}
    for option in fields(options):
        value = getattr(options, option.name)
        if value in (None, (), []) or value == {} or option.name == "timeout_s":
            continue
        if option.name in _JSON:
            asked[_JSON[option.name]] = json.dumps(value)
        else:
            asked[_RENAMED.get(option.name, option.name)] = value
    return asked


def _prompt(prompt: Prompt) -> dict[str, str]:
    return {"text_input": prompt} if isinstance(prompt, str) else {"messages": json.dumps(list(prompt))}
