"""What passes between a door (Triton tensors) and the loops that serve it.

A door turns a client's request into an `Ask` and hands over a `ResponsePort`; it decides nothing.
The loop answers with `Piece`s, the last of which carries a `Finish`, exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from router_backend.core.effects import Reason, TokenLogprobs
from router_backend.core.request import PolicyValue


@dataclass(frozen=True, slots=True)
class Ask:
    """What the client wrote, types already right, values not yet checked.

    Exactly one of `text`, `messages` (OpenAI-style role/content dicts) and `input_ids` is set.
    None means that the client did not say.
    """

    text: str | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    """Functions that the chat template shows to the model, as OpenAI writes them."""
    input_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_tokens: int | None = None
    logprobs: int | None = None
    """Report each token's log-probability, and so many likeliest tokens beside it."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, what to add to its logit), as the client ordered them."""
    bad_words: tuple[str, ...] = ()
    bad_ids: tuple[tuple[int, ...], ...] = ()
    """Bad words as runs of token ids."""
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    is_streaming: bool = False
    is_echoing: bool = False
    """Put the prompt in front of the answer's text."""
    policy: str | None = None
    policy_params: dict[str, PolicyValue] | None = None
    timeout_s: float | None = None
    client_id: str = ""
    """The client's own request id; may be empty or used twice at once."""


@dataclass(frozen=True, slots=True)
class Finish:
    """How a request ended; what its counts were. `code` is a stable machine code when there was an error."""

    reason: Reason
    code: str = ""
    message: str = ""
    stop_text: str = ""
    """The stop string that matched, if one did."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    discarded_tokens: int = 0
    handoffs: int = 0
    seed: int | None = None
    """Whoever sends it with the same request gets the same answer; None if none was drawn yet."""


class Likely(NamedTuple):
    """A token, how likely its author found it (`router_backend.core.effects.TokenLogprobs`), its bytes."""

    token_id: int
    logprob: float
    spelling: bytes = b""
    """Empty where nobody has the tokenizer: a subserver that is called alone."""


class TokenReport(NamedTuple):
    """The token that was written, and the ones that its author found likeliest."""

    own: Likely
    top: tuple[Likely, ...] = ()


Spell = Callable[[int], bytes]


def _unspelled(token_id: int) -> bytes:
    return b""


def reports(
    token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs], spell: Spell = _unspelled
) -> tuple[TokenReport, ...]:
    """One per token; none when there are no log-probabilities."""
    return tuple(
        TokenReport(
            Likely(token, told.own, spell(token)),
            tuple(Likely(other, value, spell(other)) for other, value in told.top),
        )
        for token, told in zip(token_ids, logprobs, strict=bool(logprobs))
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """One response: text that is safe to show, the tokens it stands for, and who wrote each of them."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    """Model index per token."""
    prompt_tokens: int = 0
    finish: Finish | None = field(default=None)
    chars: tuple[int, ...] = ()
    """Characters of the answer per token, where there is text: they divide the joined text of all pieces."""
    logprobs: tuple[TokenReport, ...] = ()
    """One per token if the client asked, else none."""


class ResponsePort(Protocol):
    """Where the pieces of one request go. Non-blocking; the sender thread does the rest.

    A piece with a `finish` is the last: the port sends FINAL with it exactly once and ignores later ones.
    """

    def put(self, piece: Piece) -> None: ...

    @property
    def unsent(self) -> int:
        """Pieces put but not yet taken by the client's connection."""
        ...
