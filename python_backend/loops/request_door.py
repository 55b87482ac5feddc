"""From what a client wrote to a request that the models can serve, or an error that says why not.

One rule set for every door. Must never touch a queue, a socket or a client; it runs beside the front
loop, because turning a long prompt into tokens takes long. Every message names the field as clients
write it, the value and the cure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.loops.ask_fields import (
    read_cutoff,
    read_max_tokens,
    read_messages,
    read_policy,
    read_sampling,
    read_stop,
    read_timeout,
    read_tools,
)
from python_backend.loops.base import Ask
from python_backend.loops.constraint_fields import (
    read_bad_ids,
    read_bad_words,
    read_logit_bias,
    read_min_tokens,
)
from python_backend.text.base import TextCodec
from router_backend.core.errors import CapacityError, ConfigError, PeerLostError, RequestError
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestKey, Sampling
from router_backend.handoff.message import Beat
from router_backend.stream.lives import PeerLoss

Beats = tuple[Beat | None, ...]
"""What each model last said of itself, in deployment order; None for a model that is down."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that may start, and how its answer is to be given."""

    request: Request
    needed: tuple[ModelIndex, ...]
    """Models that must be alive for it to start, the one that writes the first token in front."""
    stop: tuple[str, ...]
    echo: str
    timeout_s: float

    @property
    def entry(self) -> ModelIndex:
        return self.needed[0]


class Room(NamedTuple):
    """How many tokens, prompt and answer together, the tightest model takes."""

    model: str
    tokens: int
    is_pool: bool
    """Bounded by the KV pool rather than by the model's length."""

    def error(self, message: str) -> RequestError | CapacityError:
        kind = "KV capacity" if self.is_pool else "length_max"
        limit = f"{self.tokens} tokens, the {kind} of model {self.model!r}"
        return (CapacityError if self.is_pool else RequestError)(message.format(limit=limit))


class RequestDoor:
    """Validates asks for one deployment; one thread at a time calls `admit`."""

    def __init__(
        self,
        deployment: Deployment,
        agreement: Agreement,
        text: TextCodec,
        home: str,
        draw_seed: Callable[[], int],
    ) -> None:
        self._deployment = deployment
        self._settings = deployment.front
        self._text = text
        self._home = home
        self._draw_seed = draw_seed
        self._vocab_size = min(text.vocab_size, agreement.vocab_size)
        self._eos_ids = agreement.eos_ids
        self._book = agreement.book(deployment, ModelIndex(deployment.entry_index))

    def admit(self, ask: Ask, key: RequestKey, beats: Beats) -> Ticket:
        """Raises RequestError, CapacityError, or PeerLostError while a model that it needs is down."""
        asked = read_max_tokens(ask.max_tokens)
        stop = read_stop(ask.stop)
        timeout_s = read_timeout(ask.timeout_s, self._settings.request_timeout_s)
        spec = self._policy(ask)
        vocab_size = min([self._vocab_size, *(beat.vocab_size for beat in beats if beat)])
        sampling = self._sampling(ask, vocab_size)
        prompt, echo = self._prompt(ask, vocab_size)
        stop_ids = frozenset() if ask.ignore_eos else self._ends(beats)
        draft = Request(key.request_id, prompt, 1, self._home, key.epoch, sampling, spec, stop_ids)
        needed = self._needed(spec, self._entry(draft))
        room = _tightest(self._alive(needed, beats))
        max_tokens = _fitting(asked, self._settings.max_tokens_default, len(prompt), room)
        sampling = replace(sampling, min_tokens=read_min_tokens(ask.min_tokens, max_tokens))
        request = replace(draft, max_tokens=max_tokens, sampling=sampling)
        return Ticket(request, needed, stop, echo, timeout_s)

    def _sampling(self, ask: Ask, vocab_size: int) -> Sampling:
        """All but `min_tokens`, which is bounded by what the answer may become."""
        return replace(
            read_sampling(ask, self._draw_seed),
            logit_bias=read_logit_bias(ask.logit_bias, vocab_size),
            bad_words=(
                *read_bad_words(ask.bad_words, self._text.spellings),
                *read_bad_ids(ask.bad_ids, vocab_size),
            ),
        )

    def _policy(self, ask: Ask) -> PolicySpec:
        default = self._deployment.policy
        name = default.name if ask.policy is None else ask.policy
        allowed = self._settings.policies
        if allowed is not None and name not in (*allowed, default.name):
            raise RequestError(f"policy: {name!r} is not allowed here; allowed are {', '.join(allowed)}")
        given = ask.policy_params or {}
        read_cutoff(given.get("cutoff"), self._settings.cutoff_range)
        return read_policy(name, {**default.params, **given} if name == default.name else given)

    def _ends(self, beats: Beats) -> frozenset[int]:
        """Of every model, also of one that is down now."""
        return self._eos_ids.union(*(beat.eos_ids for beat in beats if beat))

    def _entry(self, request: Request) -> ModelIndex:
        try:
            return self._book.router(request.policy).entry(request)
        except ConfigError as error:
            message = str(error.args[0]).removeprefix("policy: ")
            raise RequestError(f"policy: {message}") from error

    def _needed(self, spec: PolicySpec, entry: ModelIndex) -> tuple[ModelIndex, ...]:
        """All models, unless the policy says by name that it never leaves the entry."""
        if spec.name == "fixed" and spec.options().get("mode", "never") == "never":
            return (entry,)
        others = (ModelIndex(index) for index in range(len(self._deployment.models)) if index != entry)
        return (entry, *others)

    def _alive(self, needed: tuple[ModelIndex, ...], beats: Beats) -> list[tuple[str, Beat]]:
        """The models that must have room; PeerLostError where one is missing that nobody may stand in for."""
        names = self._deployment.names
        found = [(names[model], beat) for model in needed if (beat := beats[model]) is not None]
        missing = [names[model] for model in needed if beats[model] is None]
        if missing and (self._deployment.on_peer_loss is not PeerLoss.CONTINUE_LOCAL or not found):
            message = f"model {missing[0]!r} is not running (not up yet, or died): try again later"
            raise PeerLostError(message)
        return found

    def _prompt(self, ask: Ask, vocab_size: int) -> tuple[tuple[int, ...], str]:
        """(token ids, what an echo shows)."""
        inputs = {"text_input": ask.text, "messages": ask.messages, "input_ids": ask.input_ids}
        given = [name for name, value in inputs.items() if value is not None]
        if len(given) != 1:
            raise RequestError(f"text_input, messages, input_ids: give exactly one, got {given or 'none'}")
        if ask.tools and ask.messages is None:
            raise RequestError("tools: only a chat has tools: send messages, or leave them out")
        if ask.input_ids is not None:
            ids = self._checked_ids(ask.input_ids, vocab_size)
            return ids, self._text.decode(ids) if ask.is_echoing else ""
        text = ask.text if ask.text is not None else self._chat(ask)
        return self._encoded(given[0], text), text if ask.is_echoing else ""

    def _chat(self, ask: Ask) -> str:
        return self._text.render(read_messages(ask.messages), read_tools(ask.tools))

    def _encoded(self, field: str, text: str) -> tuple[int, ...]:
        limit = self._settings.prompt_bytes_max
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise RequestError(f"{field}: is not Unicode at character {error.start}: send UTF-8") from error
        if size > limit:
            raise RequestError(f"{field}: {size} bytes, prompt_bytes_max is {limit}: send a shorter prompt")
        prompt = self._text.encode(text) if text else ()
        if not prompt:
            raise RequestError(f"{field}: {text!r} is an empty prompt: send at least one token")
        return prompt

    def _checked_ids(self, ids: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
        if not ids:
            raise RequestError("input_ids: [] is an empty prompt: send at least one token")
        wrong = next(((at, token) for at, token in enumerate(ids) if not 0 <= token < vocab_size), None)
        if wrong:
            at, token = wrong
            raise RequestError(f"input_ids[{at}]: {token} is no token id: use 0..{vocab_size - 1}")
        return ids


def _tightest(alive: list[tuple[str, Beat]]) -> Room:
    rooms = [
        Room(name, min(beat.length_max, beat.capacity_tokens), beat.capacity_tokens < beat.length_max)
        for name, beat in alive
    ]
    return min(rooms, key=lambda room: room.tokens)


def _fitting(asked: int | None, default: int, prompt_len: int, room: Room) -> int:
    """What was asked, or the default as far as there is room for it."""
    left = room.tokens - prompt_len
    if left < 1:
        raise room.error(
            f"prompt: {prompt_len} tokens leave no room for an answer within {{limit}}: "
            f"send at most {room.tokens - 1}"
        )
    wanted = min(left, default) if asked is None else asked
    if wanted > left:
        raise room.error(
            f"max_tokens: {wanted} after a prompt of {prompt_len} tokens exceed {{limit}}: "
            f"set max_tokens to at most {left}"
        )
    return wanted
