"""What comes back: pieces of an answer, the whole of it, and who wrote which part.

The invariant: joined chunks are the answer, and `parts` divides its text without a rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True)
class Likely:
    """A token and how likely the author of its place found it."""

    text: str
    spelling: bytes
    """Exact where `text` is not: a token may be part of a character."""
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenReport:
    """The token that was written, and the likeliest ones, the likeliest first."""

    own: Likely
    top: tuple[Likely, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an answer ended (`stop`, `length` or `cancelled`) and what routing it cost."""

    reason: str
    stop_text: str = ""
    """The stop string that matched, if one did."""
    handoffs: int = 0
    discarded_tokens: int = 0
    """Sampled, but not part of the answer."""
    seed: int = 0
    """Whoever sends it with the same request gets the same answer."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One response: text that is safe to show and the tokens committed since the last one.

    Text may lag behind its tokens (a stop string could begin with it), so `chars` divides the text of the
    whole answer, not the text of this chunk.
    """

    text: str = ""
    authors: tuple[int, ...] = ()
    """Index of the model that wrote each token."""
    chars: tuple[int, ...] = ()
    """Characters of the answer per token."""
    prompt_tokens: int = 0
    """In one chunk only."""
    ending: Ending | None = None
    logprobs: tuple[TokenReport, ...] = ()
    """One per token where they were asked for."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    text: str
    authors: tuple[int, ...]
    chars: tuple[int, ...]
    prompt_tokens: int
    ending: Ending
    logprobs: tuple[TokenReport, ...] = ()

    @property
    def output_tokens(self) -> int:
        return len(self.authors)

    def share(self, model: int) -> float:
        """The part of the tokens that `model` (an index) wrote, 0 for an empty answer."""
        return self.authors.count(model) / len(self.authors) if self.authors else 0.0

    def parts(self) -> list[tuple[int, str]]:
        """(model index, text) per token; joined they are the text."""
        return divided(self.text, self.authors, self.chars)


@dataclass(frozen=True, slots=True)
class Description:
    """What the server's text door says of itself; models smallest first, in the order of author indexes."""

    models: tuple[str, ...] = ()
    policy: str = ""
    cutoff: float | None = None
    cutoff_range: tuple[float, float] | None = None
    """What a request may choose; None: anything."""
    subservers: tuple[tuple[str, ...], ...] = ()
    """The Triton models behind the door, the replicas of one LLM together."""


def divided(text: str, authors: Iterable[int], chars: Iterable[int]) -> list[tuple[int, str]]:
    """`text` token by token.

    A stop string's text is counted but absent; a character that never became complete is there but not
    counted, and goes to the last token.
    """
    found, start = [], 0
    for author, count in zip(authors, chars, strict=True):
        found.append((author, text[start : start + count]))
        start += count
    if found and start < len(text):
        found[-1] = (found[-1][0], found[-1][1] + text[start:])
    return found


def joined(chunks: Iterable[Chunk]) -> Answer:
    """The answer that these chunks are; its ending is that of the last one."""
    seen = list(chunks)
    ending = seen[-1].ending if seen else None
    return Answer(
        text="".join(chunk.text for chunk in seen),
        authors=tuple(chain.from_iterable(chunk.authors for chunk in seen)),
        chars=tuple(chain.from_iterable(chunk.chars for chunk in seen)),
        prompt_tokens=max((chunk.prompt_tokens for chunk in seen), default=0),
        ending=ending or Ending("cancelled"),
        logprobs=tuple(chain.from_iterable(chunk.logprobs for chunk in seen)),
    )
