"""Checks what a client asked of one model by token ids, and makes the request of it.

Pure: the answer depends on the arguments alone. Every refusal is a RequestError that names the field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from python_backend.loops.base import Ask
from python_backend.runner.base import RunnerInfo
from router_backend.core.errors import RequestError
from router_backend.core.request import PolicySpec, Request, RequestId, Sampling

SEED_MAX = 2**63 - 1
TOP_K_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class TokenDoor:
    """What one subserver accepts. `name` is its model and its endpoint; `instance` tells its lives apart."""

    name: str
    instance: int
    info: RunnerInfo
    tokens_max: int
    """Prompt and answer together: what length_max and the KV pool both allow."""
    max_tokens_default: int = 128
    open_max: int = 1280
    timeout_s: float = 600.0


def to_request(ask: Ask, door: TokenDoor, number: int) -> Request:
    """The request of `ask`; `number` differs for every request of this process."""
    _refuse_unsupported(ask)
    prompt = _prompt(ask, door)
    return Request(
        request_id=RequestId(f"{door.name}-{door.instance:x}-{number}"),
        prompt=prompt,
        max_tokens=_max_tokens(ask, door, len(prompt)),
        home=door.name,
        sampling=_sampling(ask, (door.instance + number) & SEED_MAX),
        policy=PolicySpec("fixed", (("entry", door.name), ("mode", "never"))),
        stop_ids=frozenset() if ask.ignore_eos else door.info.eos_ids,
    )


def timeout_s(ask: Ask, door: TokenDoor) -> float:
    """How long the request may take; the door's own limit where the client gave none."""
    if ask.timeout_s is None:
        return door.timeout_s
    if not 0 < ask.timeout_s < math.inf:
        raise RequestError(f"timeout_s: {ask.timeout_s} must be a positive number of seconds")
    return min(ask.timeout_s, door.timeout_s)


def _refuse_unsupported(ask: Ask) -> None:
    if ask.text is not None or ask.messages is not None:
        raise RequestError("text_input: this model takes input_ids; send text to the router's model")
    if ask.stop:
        raise RequestError("stop: stop strings need text; send the request to the router's model")
    if ask.is_echoing:
        raise RequestError("exclude_input_in_output: a model that takes input_ids never repeats the prompt")
    if ask.policy not in (None, "fixed") or ask.policy_params:
        raise RequestError("policy: a model that is called directly is never routed")


def _prompt(ask: Ask, door: TokenDoor) -> tuple[int, ...]:
    if not ask.input_ids:
        raise RequestError("input_ids: at least one token id is needed")
    lowest, highest = min(ask.input_ids), max(ask.input_ids)
    if lowest < 0 or highest >= door.info.vocab_size:
        wrong = lowest if lowest < 0 else highest
        raise RequestError(f"input_ids: {wrong} is outside the vocabulary 0..{door.info.vocab_size - 1}")
    if len(ask.input_ids) >= door.tokens_max:
        raise RequestError(
            f"input_ids: {len(ask.input_ids)} tokens leave no room for an answer; {door.name} holds "
            f"{door.tokens_max} tokens of prompt and answer together"
        )
    return ask.input_ids


def _max_tokens(ask: Ask, door: TokenDoor, prompt_len: int) -> int:
    room = door.tokens_max - prompt_len
    if ask.max_tokens is None:
        return min(door.max_tokens_default, room)
    if not 1 <= ask.max_tokens <= room:
        raise RequestError(f"max_tokens: {ask.max_tokens} must be from 1 to {room} for this prompt")
    return ask.max_tokens


def _sampling(ask: Ask, seed_default: int) -> Sampling:
    temperature = 0.0 if ask.temperature is None else ask.temperature
    top_p = 1.0 if ask.top_p is None else ask.top_p
    top_k = ask.top_k or 0
    seed = seed_default if ask.seed is None else ask.seed
    # Written so that NaN fails too.
    if not 0 <= temperature < math.inf:
        raise RequestError(f"temperature: {temperature} must be a finite number of at least 0")
    if not 0 < top_p <= 1:
        raise RequestError(f"top_p: {top_p} must be above 0 and at most 1")
    if not 0 <= top_k <= TOP_K_MAX:
        raise RequestError(f"top_k: {top_k} must be from 0 (off) to {TOP_K_MAX}")
    if not 0 <= seed <= SEED_MAX:
        raise RequestError(f"seed: {seed} must be from 0 to {SEED_MAX}")
    return Sampling(temperature, top_k, top_p, seed)
