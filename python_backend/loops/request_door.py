"""From what a client wrote to a request that the models can serve, or an error that says why not.

One rule set for every door. Must never touch a queue, a socket or a client; it runs beside the front
loop, because turning a long prompt into tokens takes long. Every message names the field as clients
write it, the value and the cure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from python_backend.config import Deployment
from python_backend.loops.base import Ask
from python_backend.text.base import TextCodec
from router_backend.core.errors import CapacityError, ConfigError, PeerLostError, RequestError
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, Sampling
from router_backend.handoff.message import Beat
from router_backend.policies.base import Place
from router_backend.policies.registry import PolicyBook

TEMPERATURE_MAX = 2.0
SEED_MAX = 2**63 - 1
STOP_STRINGS_MAX = 32
STOP_CHARS_MAX = 4096

Beats = tuple[Beat | None, ...]
"""What each model last said of itself, in deployment order; None for a model that is down."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that may start, and how its answer is to be given."""

    request: Request
    entry: ModelIndex
    needed: tuple[ModelIndex, ...]
    """Models that must be alive for it to start."""
    stop: tuple[str, ...]
    echo: str
    timeout_s: float


class RequestDoor:
    """Validates asks for one deployment; thread-safe as long as one thread at a time calls `admit`."""

    def __init__(
        self, deployment: Deployment, text: TextCodec, home: str, draw_seed: Callable[[], int]
    ) -> None:
        self._deployment = deployment
        self._settings = deployment.front
        self._text = text
        self._home = home
        self._draw_seed = draw_seed
        self._books: dict[int, PolicyBook] = {}

    def admit(self, ask: Ask, request_id: RequestId, beats: Beats) -> Ticket:
        """Raises RequestError, CapacityError or PeerLostError."""
        sampling = read_sampling(ask, self._draw_seed)
        stop = read_stop(ask.stop)
        timeout_s = read_timeout(ask.timeout_s, self._settings.request_timeout_s)
        spec = self._policy(ask)
        vocab_size = min([self._text.vocab_size, *(beat.vocab_size for beat in beats if beat)])
        prompt, shown = self._prompt(ask, vocab_size)
        request = Request(
            request_id, prompt, ask.max_tokens or 1, self._home, sampling=sampling, policy=spec
        )
        entry = self._entry(request, vocab_size)
        needed = self._needed(spec, entry)
        alive = self._alive(needed, beats)
        stop_ids = () if ask.ignore_eos else (token for beat in beats if beat for token in beat.eos_ids)
        request = Request(
            request_id,
            prompt,
            self._max_tokens(ask.max_tokens, len(prompt), alive),
            self._home,
            sampling=sampling,
            policy=spec,
            stop_ids=frozenset(stop_ids),
        )
        return Ticket(request, entry, needed, stop, shown if ask.is_echoing else "", timeout_s)

    def _policy(self, ask: Ask) -> PolicySpec:
        default = self._deployment.policy
        name = default.name if ask.policy is None else ask.policy
        allowed = self._settings.policies
        if allowed is not None and name not in (*allowed, default.name):
            raise RequestError(f"policy: {name!r} is not allowed here; allowed are {', '.join(allowed)}")
        base = default.params if name == default.name else {}
        params = {**base, **(ask.policy_params or {})}
        return PolicySpec(name, tuple(sorted(params.items())))

    def _entry(self, request: Request, vocab_size: int) -> ModelIndex:
        book = self._books.get(vocab_size)
        if book is None:
            entry = ModelIndex(self._deployment.entry_index)
            book = self._books[vocab_size] = PolicyBook(
                Place(entry, self._deployment.names, entry, vocab_size)
            )
        try:
            return book.router(request.policy).entry(request)
        except ConfigError as error:
            raise RequestError(f"policy: {error.args[0]}") from error

    def _needed(self, spec: PolicySpec, entry: ModelIndex) -> tuple[ModelIndex, ...]:
        """All models, unless the policy says by name that it never leaves the entry."""
        if spec.name == "fixed" and spec.options().get("mode", "never") == "never":
            return (entry,)
        return tuple(ModelIndex(index) for index in range(len(self._deployment.models)))

    def _alive(self, needed: tuple[ModelIndex, ...], beats: Beats) -> list[tuple[str, Beat]]:
        alive = []
        for model in needed:
            beat = beats[model]
            name = self._deployment.names[model]
            if beat is None:
                raise PeerLostError(f"model {name!r} is not running (not up yet, or it died): try again later")
            alive.append((name, beat))
        return alive

    def _prompt(self, ask: Ask, vocab_size: int) -> tuple[tuple[int, ...], str]:
        """(token ids, the prompt as text)."""
        given = [name for name, value in _inputs(ask).items() if value is not None]
        if len(given) != 1:
            raise RequestError(f"text_input, messages, input_ids: give exactly one, got {given or 'none'}")
        if ask.input_ids is not None:
            return self._checked_ids(ask.input_ids, vocab_size), self._echoed(ask)
        field = given[0]
        text = self._text.render(read_messages(ask.messages)) if ask.messages is not None else ask.text or ""
        size = len(text.encode("utf-8", "replace"))
        if size > self._settings.prompt_bytes_max:
            limit = self._settings.prompt_bytes_max
            raise RequestError(f"{field}: {size} bytes, prompt_bytes_max is {limit}: send a shorter prompt")
        prompt = self._text.encode(text) if text else ()
        if not prompt:
            raise RequestError(f"{field}: {text!r} is an empty prompt: send at least one token")
        return prompt, text

    def _echoed(self, ask: Ask) -> str:
        return self._text.decode(ask.input_ids or ()) if ask.is_echoing else ""

    def _checked_ids(self, ids: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
        if not ids:
            raise RequestError("input_ids: [] is an empty prompt: send at least one token")
        limit = self._settings.prompt_bytes_max
        if len(ids) > limit:
            raise RequestError(f"input_ids: {len(ids)} tokens, prompt_bytes_max is {limit}: send fewer")
        for position, token in enumerate(ids):
            if not 0 <= token < vocab_size:
                raise RequestError(
                    f"input_ids: token {token} at position {position} is out of range: use 0..{vocab_size - 1}"
                )
        return ids

    def _max_tokens(self, asked: int | None, prompt_len: int, alive: list[tuple[str, Beat]]) -> int:
        """What was asked, or the default as far as there is room for it."""
        rooms = {name: min(beat.length_max, beat.capacity_tokens) - prompt_len for name, beat in alive}
        name = min(rooms, key=lambda key: rooms[key])
        beat, room = dict(alive)[name], rooms[name]
        limit, error = (
            ("length_max", RequestError)
            if beat.length_max <= beat.capacity_tokens
            else ("KV capacity", CapacityError)
        )
        size = min(beat.length_max, beat.capacity_tokens)
        if room < 1:
            raise error(
                f"prompt: {prompt_len} tokens leave no room for an answer within {size} tokens, the {limit} "
                f"of model {name!r}: send at most {size - 1}"
            )
        wanted = min(room, self._settings.max_tokens_default) if asked is None else asked
        if wanted < 1:
            raise RequestError(f"max_tokens: {wanted} must be at least 1")
        if wanted > room:
            raise error(
                f"max_tokens: prompt of {prompt_len} + max_tokens {wanted} exceed {size} tokens, the {limit} "
                f"of model {name!r}: set max_tokens to at most {room}"
            )
        return wanted


def _inputs(ask: Ask) -> dict[str, Any]:
    return {"text_input": ask.text, "messages": ask.messages, "input_ids": ask.input_ids}


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
    if ask.seed is not None and not 0 <= ask.seed <= SEED_MAX:
        raise RequestError(f"seed: {ask.seed} must be from 0 to {SEED_MAX}")
    return Sampling(temperature, max(top_k, 0), top_p, draw_seed() if ask.seed is None else ask.seed)


def read_stop(stop: tuple[str, ...]) -> tuple[str, ...]:
    if len(stop) > STOP_STRINGS_MAX:
        raise RequestError(f"stop: {len(stop)} strings, at most {STOP_STRINGS_MAX} are allowed")
    for text in stop:
        if not text:
            raise RequestError('stop: "" would stop every answer at once: leave it out')
        if len(text) > STOP_CHARS_MAX:
            raise RequestError(f"stop: a string of {len(text)} characters, at most {STOP_CHARS_MAX} are allowed")
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
    unknown = sorted(message.keys() - {"role", "content", "name"})
    if unknown:
        raise RequestError(f"{field}.{unknown[0]}: not supported; role, content and name are")
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(_text_part(field, part) for part in content)
    if not isinstance(content, str):
        raise RequestError(f"{field}.content: must be text")
    return {**message, "content": content}


def _text_part(field: str, part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise RequestError(f"{field}.content: only text parts are supported")
    return text
