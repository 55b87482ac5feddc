"""What an OpenAI client may send, as pydantic models, and what it means for the door.

Shapes and names only: what depends on models and policies is the door's to check. The invariant: every field
is used, is known to mean nothing here, or is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from python_backend.client import Description, Options, Prompt

INT32_MAX = 2**31 - 1
LOGPROBS_MAX = 20
SEED_MAX = 2**63 - 1
Scalar = bool | int | float | str
BiasKey = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class RouterOptions(Body):
    """Our extension: which policy routes this request, and how."""

    policy: str | None = None
    cutoff: float | None = None
    """Of that policy; brought into the range that the deployment allows."""
    params: dict[str, Scalar] | None = None
    """Further parameters of the policy."""


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False
    """Means nothing here."""


class Inert(Body):
    """Fields that clients send and that change nothing here."""

    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None


class Generation(Inert):
    """What completions and chats share. From `ignore_eos` on: vLLM's names for what OpenAI has not."""

    model: str
    max_tokens: int | None = Field(None, ge=1, le=INT32_MAX)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=SEED_MAX)
    stop: str | list[str] | None = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[BiasKey, float] | None = None
    ignore_eos: bool | None = None
    top_k: int | None = Field(None, ge=-1, le=INT32_MAX)
    min_p: float | None = Field(None, ge=0, le=1)
    min_tokens: int | None = Field(None, ge=0, le=INT32_MAX)
    repetition_penalty: float | None = Field(None, gt=0, le=2)
    bad_words: list[str] | None = None
    x_router: RouterOptions = RouterOptions()

    @model_validator(mode="after")
    def _possible(self) -> Generation:
        for name, reason in self.impossible().items():
            raise ValueError(f"{name}: {reason}")
        return self

    def impossible(self) -> dict[str, str]:
        """What is asked for and cannot be done, and why, by field."""
        found = {}
        if self.n not in (None, 1):
            found["n"] = f"{self.n} answers at once are not supported: send as many requests"
        if self.stream_options is not None and not self.stream:
            found["stream_options"] = "only a stream has them: set stream to true, or leave them out"
        return found

    @property
    def has_usage_chunk(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def answer_tokens_max(self) -> int | None:
        return self.max_tokens

    @property
    def logprobs_wanted(self) -> int | None:
        """How many likely tokens beside each; None: no log-probabilities."""
        return None

    def options(self, server: Description) -> Options:
        """How the door is asked."""
        return Options(
            max_tokens=self.answer_tokens_max,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stop=_listed(self.stop),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias={int(token): bias for token, bias in (self.logit_bias or {}).items()},
            ignore_eos=self.ignore_eos,
            top_k=self.top_k,
            min_p=self.min_p,
            min_tokens=self.min_tokens,
            repetition_penalty=self.repetition_penalty,
            bad_words=tuple(self.bad_words or ()),
            logprobs=self.logprobs_wanted,
            policy=self.x_router.policy,
            policy_params=policy_params(self.x_router, server),
        )


class CompletionRequest(Generation):
    """POST /v1/completions."""

    prompt: str | list[str] | list[int] | list[list[int]]
    echo: bool = False
    best_of: int | None = None
    suffix: str | None = None
    logprobs: int | None = Field(None, ge=0, le=LOGPROBS_MAX)

    def impossible(self) -> dict[str, str]:
        found = super().impossible()
        if not isinstance(self.prompt, str) and not _is_one_text(self.prompt):
            found["prompt"] = "must be one text: send one request per prompt, and texts instead of token ids"
        if self.best_of not in (None, 1):
            found["best_of"] = f"{self.best_of} is not supported: leave it out"
        if self.suffix:
            found["suffix"] = "is not supported: leave it out"
        if self.logprobs is not None and self.echo:
            found["echo"] = "a prompt has no log-probabilities here: leave out echo or logprobs"
        return found

    @property
    def logprobs_wanted(self) -> int | None:
        return self.logprobs

    @property
    def text(self) -> str:
        return self.prompt if isinstance(self.prompt, str) else str(self.prompt[0])

    def prompt_for_door(self) -> Prompt:
        return self.text


class ResponseFormat(Body):
    type: str


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1, le=INT32_MAX)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=LOGPROBS_MAX)

    def impossible(self) -> dict[str, str]:
        found = super().impossible()
        if self.tool_choice not in (None, "none", "auto"):
            found["tool_choice"] = "a call cannot be forced: use auto or none"
        if self.response_format is not None and self.response_format.type != "text":
            found["response_format"] = f"{self.response_format.type!r} is not supported: only text is"
        if self.top_logprobs is not None and not self.logprobs:
            found["top_logprobs"] = "needs logprobs: set logprobs to true, or leave it out"
        return found

    @property
    def logprobs_wanted(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def answer_tokens_max(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def prompt_for_door(self) -> Prompt:
        return [_message(message) for message in self.messages]

    def options(self, server: Description) -> Options:
        tools = () if self.tool_choice == "none" else tuple(self.tools or ())
        common = super().options(server)
        return Options(**{**{name: getattr(common, name) for name in Options.__slots__}, "tools": tools})


def policy_params(wish: RouterOptions, server: Description) -> Mapping[str, Scalar]:
    """The policy's parameters with the cutoff in them, brought into the range that the server allows."""
    params = dict(wish.params or {})
    if wish.cutoff is not None:
        params["cutoff"] = clamped(wish.cutoff, server.cutoff_range)
    return params


def clamped(cutoff: float, bounds: tuple[float, float] | None) -> float:
    return cutoff if bounds is None else min(max(cutoff, bounds[0]), bounds[1])


def _is_one_text(prompt: list[Any]) -> bool:
    return len(prompt) == 1 and isinstance(prompt[0], str)


def _listed(stop: str | list[str] | None) -> tuple[str, ...]:
    return () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """As chat templates expect it: no empty keys, and a call's arguments as an object, not JSON text."""
    kept = {key: value for key, value in message.items() if value is not None}
    calls = kept.get("tool_calls")
    return {**kept, "tool_calls": [_call(call) for call in calls]} if isinstance(calls, list) else kept


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return call  # the template shows what the client wrote
    return {**call, "function": {**function, "arguments": arguments}}
