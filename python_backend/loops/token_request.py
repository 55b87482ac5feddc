"""Checks what a client asked of one model by token ids, and makes the request of it.

Pure: the answer depends on the arguments alone. Every refusal is a RequestError that names the field.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from python_backend.loops.ask_fields import SEED_MAX, read_sampling
from python_backend.loops.base import Ask
from python_backend.loops.constraint_fields import read_bad_ids, read_logit_bias, read_min_tokens
from python_backend.runner.base import RunnerInfo
from router_backend.core.errors import RequestError
from router_backend.core.request import PolicySpec, Request, RequestId, Sampling


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
    max_tokens = _max_tokens(ask, door, len(prompt))
    return Request(
        request_id=RequestId(f"{door.name}-{door.instance:x}-{number}"),
        prompt=prompt,
        max_tokens=max_tokens,
        home=door.name,
        epoch=number,
        sampling=_sampling(ask, door, (door.instance + number) & SEED_MAX, max_tokens),
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
    if ask.bad_words:
        raise RequestError("bad_words: words need text; send token ids as bad_words_list")
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


def _sampling(ask: Ask, door: TokenDoor, seed_default: int, max_tokens: int) -> Sampling:
    """By the rules of the text doors."""
    return replace(
        read_sampling(ask, lambda: seed_default),
        logit_bias=read_logit_bias(ask.logit_bias, door.info.vocab_size),
        bad_words=read_bad_ids(ask.bad_ids, door.info.vocab_size),
        min_tokens=read_min_tokens(ask.min_tokens, max_tokens),
    )
