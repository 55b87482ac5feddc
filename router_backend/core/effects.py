"""What the core wants done. Effects are data: the shell performs them, tests compare them."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from router_backend.core.record import Record
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex, OfRequest, RequestId


class PeerMessage(Protocol):
    """Anything that one subserver tells another (`router_backend.handoff.message`)."""

    @property
    def source(self) -> int: ...


class Reason(str, Enum):
    """Why a request ended. `stop` is an end token or a stop string, `length` is max_tokens."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class TokenLogprobs(NamedTuple):
    """How likely a committed token's author found it, in nats.

    From raw logits, before temperature, filters, penalties and bans, over the vocabulary that all models
    share (R14). Never below `LOGPROB_MIN`.
    """

    own: float
    top: tuple[tuple[int, float], ...] = ()
    """(token id, logprob) of the author's likeliest tokens, downwards; as many as the request asks for."""


LOGPROB_MIN = -9999.0
"""Stands for what is impossible or no number, as other servers write it: JSON has no infinity."""


class Emit(OfRequest, Record, frozen=True):
    """Tokens that `model` has just committed; `position` is the index of the first in the answer.

    `logprobs` has one entry per token when the request asks for them, else none.
    """

    home: str
    request_id: RequestId
    epoch: int
    position: int
    token_ids: tuple[int, ...]
    model: ModelIndex
    logprobs: tuple[TokenLogprobs, ...] = ()


class Usage(Record, frozen=True):
    """What the answer cost, for the client's extra usage block (R13)."""

    discarded: int = 0
    handoffs: int = 0


class Close(OfRequest, Record, frozen=True):
    """The one terminal effect of a request. `length` = committed output tokens in total, so that the
    home can wait for commits that are still under way."""

    home: str
    request_id: RequestId
    epoch: int
    reason: Reason
    length: int
    message: str = ""
    usage: Usage = Usage()


class Send(Record, frozen=True):
    """A message for the subserver with the number `target`."""

    target: ReplicaIndex
    message: PeerMessage


Effect = Emit | Close | Send
