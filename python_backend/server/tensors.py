"""From typed values to an `Ask`, one function per door.

Decides nothing about values (the front does): it names, collects and hands on. The invariant: exactly one
of text, messages and token ids is set, and every option of the client is either in the `Ask` or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from python_backend.loops.base import Ask
from python_backend.server.constraints import constraints_of, listed
from python_backend.server.contracts import Contract
from python_backend.server.values import Array, Values, json_object, json_value, values_of
from router_backend.core.errors import RequestError
from router_backend.core.request import PolicyValue


@dataclass(frozen=True, slots=True)
class Envelope:
    """What comes with a request beside its tensors."""

    request_id: str = ""
    parameters_json: str = ""
    timeout_us: int = 0


@dataclass(frozen=True, slots=True)
class Returns:
    """Which optional outputs the client asked for."""

    finish_reason: bool = False
    input_tokens: bool = False
    output_tokens: bool = False
    routing: bool = False
    logprobs: bool = False
    cumulative_logprob: bool = False
    seed: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as one door read it."""

    ask: Ask
    returns: Returns = Returns()
    uid: int | None = None
    """The ensemble's own request number; None when nobody drives us through an ensemble."""
    is_stop: bool = False
    """Not a generation: end the one that has the same request id."""


_LOGPROBS = ("return_logprobs", "return_log_probs")
TIMEOUT_US_MAX = 2**63 - 1

Reader = Callable[[Mapping[str, Array], Envelope], Asked]


def reader(contract: Contract, collect: Callable[[Values], Asked]) -> Reader:
    """Reads requests of `contract`; RequestError names the field that is wrong."""

    def read(tensors: Mapping[str, Array], envelope: Envelope) -> Asked:
        parameters = json_object("parameters", envelope.parameters_json)
        asked = collect(values_of(contract, tensors, parameters))
        timeout_us = envelope.timeout_us or _timeout_us(parameters)
        ask = replace(asked.ask, client_id=envelope.request_id, timeout_s=timeout_us / 1e6 or None)
        return replace(asked, ask=ask)

    return read


def text_asked(values: Values) -> Asked:
    """The `token_router` door."""
    prompt = _text_prompt(values)
    ask = Ask(
        **prompt,
        **_named(values, "max_tokens", "temperature", "top_k", "top_p", "seed"),
        **constraints_of(values),
        **_logprobs(values),
        stop=listed(values.get("stop")),
        ignore_eos=_flag(values, "ignore_eos"),
        is_streaming=_flag(values, "stream"),
        is_echoing=_is_echoing(values, "stream"),
        **_policy(values),
    )
    return Asked(ask, _returns(values))


def router_asked(values: Values) -> Asked:
    """The ensemble's middle step."""
    tokens = tokens_asked(values)
    ask = replace(
        tokens.ask,
        stop=listed(values.get("stop_words")),
        is_echoing=_is_echoing(values, "streaming"),
        **_policy(values),
    )
    uid = cast("int | None", values.get("REQUEST_UID"))
    return replace(tokens, ask=ask, uid=uid)


def tokens_asked(values: Values) -> Asked:
    """A subserver alone."""
    renamed = {"runtime_top_k": "top_k", "runtime_top_p": "top_p", "request_output_len": "max_tokens"}
    named = {renamed.get(name, name): value for name, value in values.items()}
    ask = Ask(
        input_ids=_token_ids(values),
        **_named(named, "max_tokens", "temperature", "top_k", "top_p", "seed"),
        **constraints_of(values),
        **_logprobs(values),
        ignore_eos=_flag(values, "ignore_eos"),
        is_streaming=_flag(values, "streaming"),
    )
    return Asked(ask, _returns(values), is_stop=_flag(values, "stop"))


def _timeout_us(parameters: Mapping[str, Any]) -> int:
    """`generate` leaves the key `timeout` (microseconds, as in KServe's `infer`) to the model."""
    timeout = parameters.get("timeout", 0)
    if isinstance(timeout, bool) or not isinstance(timeout, int) or not 0 <= timeout <= TIMEOUT_US_MAX:
        raise RequestError(f"timeout: must be a whole number of microseconds, got {timeout!r}")
    return timeout


def _text_prompt(values: Values) -> dict[str, Any]:
    if ("text_input" in values) == ("messages" in values):
        raise RequestError("text_input: give either text_input or messages, exactly one of them")
    tools = {"tools": _objects("tools", values, "type and function")} if "tools" in values else {}
    if "messages" in values:
        return {"messages": _objects("messages", values, "role and content"), **tools}
    return {"text": values["text_input"], **tools}


def _objects(name: str, values: Values, keys: str) -> tuple[dict[str, Any], ...]:
    found = json_value(name, cast(str, values[name]))
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise RequestError(f"{name}: must be a JSON list of objects with {keys}")
    return tuple(found)


def _token_ids(values: Values) -> tuple[int, ...]:
    ids = cast("tuple[int, ...]", values.get("input_ids", ()))
    length = cast(int, values.get("input_lengths", len(ids)))
    if not 0 <= length <= len(ids):
        raise RequestError(f"input_lengths: {length} does not fit the {len(ids)} ids of input_ids")
    return ids[:length]


def _named(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _flag(values: Values, name: str) -> bool:
    return bool(values.get(name, False))


def _is_echoing(values: Values, stream: str) -> bool:
    echoes = not values.get("exclude_input_in_output", True)
    if echoes and _flag(values, stream):
        raise RequestError("exclude_input_in_output: false cannot be combined with streaming")
    return echoes


def _returns(values: Values) -> Returns:
    return Returns(
        finish_reason=_flag(values, "return_finish_reason"),
        input_tokens=_flag(values, "return_num_input_tokens"),
        output_tokens=_flag(values, "return_num_output_tokens"),
        routing=_flag(values, "return_routing"),
        logprobs="logprobs" in values or any(_flag(values, flag) for flag in _LOGPROBS),
        cumulative_logprob=_flag(values, "return_cumulative_logprob"),
        seed=_flag(values, "return_seed"),
    )


def _logprobs(values: Values) -> dict[str, Any]:
    """How many top tokens; a client that only wants the tokens' own log-probabilities sends a flag alone."""
    if "logprobs" in values:
        return {"logprobs": values["logprobs"]}
    flags = (*_LOGPROBS, "return_cumulative_logprob")
    return {"logprobs": 0} if any(_flag(values, flag) for flag in flags) else {}


def _policy(values: Values) -> dict[str, Any]:
    policy = {"policy": values["routing_algorithm"]} if values.get("routing_algorithm") else {}
    config = cast(str, values.get("routing_config", ""))
    return {**policy, "policy_params": _policy_params(config)} if config else dict(policy)


def _policy_params(text: str) -> dict[str, PolicyValue]:
    found = json_object("routing_config", text)
    for name, value in found.items():
        if not isinstance(value, (str, bool, int, float)):
            raise RequestError(f"routing_config: {name} must be a number, a truth value or a string")
    return found
