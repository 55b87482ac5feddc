"""Token ids to text, one at a time: the joined steps are the text of the whole.

Never lets part of a character out: tokens that stand for bytes go through an incremental UTF-8
decoder, which replaces what is not UTF-8 and what is still incomplete at the end by one U+FFFD per
broken character; a U+FFFD that the model wrote is kept (F01). All other tokens are decoded by the
tokenizers library after the token before them, because its decoders treat the first token of a text
differently. `tokenizers.decoders.DecodeStream` is not used: it raises on a byte run that was cut off
and never gives the incomplete end (seen with 0.23).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Any, Protocol

from router_backend.core.errors import ConfigError

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary(Protocol):
    """The part of `tokenizers.Tokenizer` that is used here."""

    def id_to_token(self, id: int) -> str | None: ...

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str: ...


def byte_alphabet() -> dict[str, int]:
    """The printable stand-in of every byte in GPT-2's byte-level vocabularies, by character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(hidden)})
    return table


_ALPHABET = byte_alphabet()


class TokenBytes:
    """Which tokens stand for bytes, for one tokenizer's `decoder` (that part of its tokenizer.json)."""

    def __init__(self, decoder: dict[str, Any] | None) -> None:
        kinds = _kinds(decoder)
        self._is_byte_level = "ByteLevel" in kinds
        self._is_falling_back = "ByteFallback" in kinds
        if self._is_byte_level and not kinds <= {"ByteLevel", "Fuse"}:
            raise ConfigError(f"tokenizer.json: decoder: {sorted(kinds)} together are not supported")

    def of(self, token: str) -> bytes | None:
        """The bytes of `token`, None for a token that is text."""
        if self._is_byte_level:
            return _byte_level(token)
        found = _BYTE.fullmatch(token) if self._is_falling_back else None
        return bytes([int(found[1], 16)]) if found else None


class Detokenizer:
    """The text of one answer. Ids in `special` and ids without a token have no text."""

    def __init__(self, vocabulary: Vocabulary, token_bytes: TokenBytes, special: frozenset[int]) -> None:
        self._vocabulary = vocabulary
        self._token_bytes = token_bytes
        self._special = special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._before: list[int] = []
        """The last token with text, as context for the next."""

    def step(self, token_id: int) -> str:
        """The text that `token_id` completes."""
        token = None if token_id in self._special else self._vocabulary.id_to_token(token_id)
        if token is None:
            return ""
        data = self._token_bytes.of(token)
        text = self.finish() + self._in_context(token_id) if data is None else self._utf8.decode(data)
        self._before = [token_id]
        return text

    def finish(self) -> str:
        """U+FFFD if the answer ends within a character."""
        text = self._utf8.decode(b"", True)
        self._utf8.reset()
        return text

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of all of `token_ids`; for a fresh detokenizer."""
        return "".join([self.step(token_id) for token_id in token_ids]) + self.finish()

    def _in_context(self, token_id: int) -> str:
        before = self._vocabulary.decode(self._before) if self._before else ""
        return self._vocabulary.decode([*self._before, token_id])[len(before) :]


def _kinds(decoder: dict[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    return {str(part["type"]) for part in decoder.get("decoders", [decoder])}


def _byte_level(token: str) -> bytes:
    """As the library does it: a token with any other character is an added one and stands for itself."""
    data = [_ALPHABET.get(char) for char in token]
    known = [byte for byte in data if byte is not None]
    return bytes(known) if len(known) == len(data) else token.encode()
