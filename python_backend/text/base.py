"""What the front needs of a tokenizer; the loops see only this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from router_backend.stream.answer import TextSource


class TextCodec(Protocol):
    """Text to token ids and back. Thread-safe, except that each text source has one user."""

    @property
    def vocab_size(self) -> int:
        """Token ids are 0 .. vocab_size - 1."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a prompt, with one beginning-of-sequence token where the model wants one."""
        ...

    def spellings(self, text: str) -> tuple[tuple[int, ...], ...]:
        """The runs of token ids that stand for `text` within an answer, with a space in front or without."""
        ...

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The prompt text of a chat, ready for `encode`; RequestError where the template refuses it.

        `tools` are functions that the template shows to the model; none when it is empty.
        """
        ...

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of `token_ids` without special tokens."""
        ...

    def spelling(self, token_id: int) -> bytes:
        """The bytes that a token stands for; a special token's name; nothing for an id without a token."""
        ...

    def text_source(self) -> TextSource:
        """A fresh incremental detokenizer."""
        ...
