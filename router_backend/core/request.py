"""What a client asked for: frozen at the door, the same on every model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, NewType

RequestId = NewType("RequestId", str)
ModelIndex = NewType("ModelIndex", int)


class RequestKey(NamedTuple):
    """One life of a request id. An id that is used again has a new epoch, and whatever is still said of the
    old life concerns nobody."""

    request_id: RequestId
    epoch: int


class OfRequest:
    """What every message about a request has."""

    __slots__ = ()
    request_id: RequestId
    epoch: int

    @property
    def key(self) -> RequestKey:
        return RequestKey(self.request_id, self.epoch)


GREEDY_BELOW = 1e-6
"""Temperatures below this are greedy, so that 0 and 1e-12 give the same answer."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn from the committing model's distribution."""

    temperature: float = 0.0
    top_k: int = 0
    """0 = off."""
    top_p: float = 1.0
    """1 = off."""
    seed: int = 0
    min_p: float = 0.0
    """Least probability of a token, relative to the likeliest one; 0 = off."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens in prompt or answer; 1 = off."""
    presence_penalty: float = 0.0
    """Taken from the logit of a token that is in the answer, whoever wrote it."""
    frequency_penalty: float = 0.0
    """Taken once for each time that the token is in the answer."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what is added to its logit), ids rising."""
    bad_words: tuple[tuple[int, ...], ...] = ()
    """Runs of token ids that must not be completed, the prompt's tail included."""
    min_tokens: int = 0
    """The answer cannot end by a stop token before it has so many tokens."""
    logprobs: int | None = None
    """How many likeliest tokens to report beside each one's own log-probability; None = report nothing."""

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def is_constrained(self) -> bool:
        """Whether the choice depends on more than the model's own logits."""
        penalties = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return penalties != (1.0, 0.0, 0.0) or bool(self.logit_bias or self.bad_words or self.min_tokens)


PolicyValue = float | int | bool | str


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A routing algorithm by name with its parameters, hashable so that equal ones are built once."""

    name: str = "fixed"
    params: tuple[tuple[str, PolicyValue], ...] = ()

    def options(self) -> dict[str, PolicyValue]:
        return dict(self.params)


@dataclass(frozen=True, slots=True)
class Request(OfRequest):
    """One generation.

    `prompt` holds token ids, at least one. `home` names the endpoint that owns the client and
    receives every commit. `epoch` tells two lives of one id apart: a home never gives the same one twice.
    """

    request_id: RequestId
    prompt: tuple[int, ...]
    max_tokens: int
    home: str = "front"
    epoch: int = 0
    sampling: Sampling = Sampling()
    policy: PolicySpec = PolicySpec()
    stop_ids: frozenset[int] = field(default_factory=frozenset)
    """End-of-sequence and stop token ids of every model of the deployment."""

    @property
    def prompt_len(self) -> int:
        return len(self.prompt)

    @property
    def length_max(self) -> int:
        """Tokens of prompt and longest answer together."""
        return len(self.prompt) + self.max_tokens

    def raw_steps_max(self, models: int) -> int:
        """Bound on sampled tokens without drafts; at worst `models - 1` discards a position (R4, R5)."""
        return models * (self.max_tokens + 8)
