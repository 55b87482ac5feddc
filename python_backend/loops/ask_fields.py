"""The values that a client wrote, each checked by one rule on which all engines can agree.

Engines differ on the edges (a top_p of 0, a top_k of -1, a missing seed); here is the only place that
decides. Must never look at models or queues. Every message names the field, the value and the cure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from python_backend.loops.base import Ask
from python_backend.loops.constraint_fields import read_penalties
from router_backend.core.errors import RequestError
from router_backend.core.request import PolicySpec, PolicyValue, Sampling

TEMPERATURE_MAX = 2.0
SEED_MAX = 2**63 - 1
TOP_K_MAX = 2**31 - 1
WHOLE_MAX = 2**63 - 1
"""Nothing beyond can travel between processes."""
LOGPROBS_MAX = 20
STOP_STRINGS_MAX = 32
STOP_CHARS_MAX = 4096
MESSAGE_KEYS = frozenset(("role", "content", "name", "tool_calls", "tool_call_id"))


def read_sampling(ask: Ask, draw_seed: Callable[[], int]) -> Sampling:
    """One rule for the edge values on which the engines differ; an unseeded request gets its own seed."""
    temperature = 0.0 if ask.temperature is None else ask.temperature
    if not (math.isfinite(temperature) and 0.0 <= temperature <= TEMPERATURE_MAX):
        raise RequestError(f"temperature: {temperature} must be a number from 0 to {TEMPERATURE_MAX:g}")
    top_p = 1.0 if ask.top_p is None else ask.top_p
    if not 0.0 < top_p <= 1.0:
        raise RequestError(f"top_p: {top_p} must be above 0 and at most 1 (1 = off)")
    top_k = ask.top_k or 0
    if top_k < -1:
        raise RequestError(f"top_k: {top_k} must be at least 1, or 0 or -1 for off")
    if top_k > TOP_K_MAX:
        raise RequestError(f"top_k: {top_k} must be at most {TOP_K_MAX}; 0 = off")
    if ask.seed is not None and not 0 <= ask.seed <= SEED_MAX:
        raise RequestError(f"seed: {ask.seed} must be from 0 to {SEED_MAX}")
    if ask.logprobs is not None and not 0 <= ask.logprobs <= LOGPROBS_MAX:
        raise RequestError(f"logprobs: {ask.logprobs} must be from 0 to {LOGPROBS_MAX} tokens")
    seed = draw_seed() if ask.seed is None else ask.seed
    return read_penalties(ask, Sampling(temperature, max(top_k, 0), top_p, seed, logprobs=ask.logprobs))


def read_max_tokens(asked: int | None) -> int | None:
    if asked is not None and asked < 1:
        raise RequestError(f"max_tokens: {asked} must be at least 1")
    return asked


def read_policy(name: str, params: dict[str, PolicyValue]) -> PolicySpec:
    """The policy by name; whether it knows the parameters is for the policy to say."""
    for key, value in params.items():
        if not isinstance(value, float | int | bool | str):
            raise RequestError(f"policy: {name}.{key}: {value!r} must be a number, a text, true or false")
        if isinstance(value, int) and abs(value) > WHOLE_MAX:
            raise RequestError(f"policy: {name}.{key}: a whole number may be at most {WHOLE_MAX}")
    return PolicySpec(name, tuple(sorted(params.items())))


def read_cutoff(asked: PolicyValue | None, bounds: tuple[float, float] | None) -> None:
    """RequestError where the deployment bounds what a request may choose as its policy's cutoff."""
    if bounds is None or asked is None:
        return
    if not isinstance(asked, int | float) or not bounds[0] <= asked <= bounds[1]:
        raise RequestError(f"policy: cutoff: {asked!r} must be from {bounds[0]:g} to {bounds[1]:g} here")


def read_stop(stop: tuple[str, ...]) -> tuple[str, ...]:
    if len(stop) > STOP_STRINGS_MAX:
        raise RequestError(f"stop: {len(stop)} strings, at most {STOP_STRINGS_MAX} are allowed")
    for text in stop:
        if not text:
            raise RequestError('stop: "" would stop every answer at once: leave it out')
        if len(text) > STOP_CHARS_MAX:
            raise RequestError(f"stop: a string of {len(text)} characters; at most {STOP_CHARS_MAX} may be")
    return stop


def read_timeout(asked: float | None, limit: float) -> float:
    if asked is None:
        return limit
    if not (math.isfinite(asked) and asked > 0):
        raise RequestError(f"timeout: {asked} must be a positive number of seconds")
    return min(asked, limit)


def read_messages(messages: tuple[dict[str, Any], ...] | None) -> list[dict[str, Any]]:
    """Chat messages with plain text contents, as every template takes them."""
    if not messages:
        raise RequestError("messages: [] is an empty chat: send at least one message")
    return [_message(index, message) for index, message in enumerate(messages)]


def _message(index: int, message: dict[str, Any]) -> dict[str, Any]:
    field = f"messages[{index}]"
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"{field}.role: must be a text such as user or assistant")
    unknown = sorted(message.keys() - MESSAGE_KEYS)
    if unknown:
        raise RequestError(f"{field}.{unknown[0]}: not supported; {', '.join(sorted(MESSAGE_KEYS))} are")
    calls = message.get("tool_calls")
    if calls is not None and not _are_objects(calls):
        raise RequestError(f"{field}.tool_calls: must be a list of objects")
    content = message.get("content")
    if content is None and calls:
        content = ""  # an assistant that only calls functions says nothing
    if isinstance(content, list):
        content = "".join(_text_part(field, part) for part in content)
    if not isinstance(content, str):
        raise RequestError(f"{field}.content: must be text")
    return {**message, "content": content}


def read_tools(tools: tuple[dict[str, Any], ...] | None) -> list[dict[str, Any]]:
    """Functions that a chat template can show; what is in their schema is the client's business."""
    return [_tool(index, tool) for index, tool in enumerate(tools or ())]


def _tool(index: int, tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict):
        raise RequestError(f'tools[{index}]: must be {{"type": "function", "function": {{...}}}}')
    if not isinstance(function.get("name"), str):
        raise RequestError(f"tools[{index}].function.name: must be a text")
    return tool


def _are_objects(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(item, dict) for item in found)


def _text_part(field: str, part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise RequestError(f"{field}.content: only text parts are supported")
    return text
