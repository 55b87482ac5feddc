"""A model directory's tokenizer: prompts to ids, and what ids need to become text.

Only the `tokenizers` library: this lives in the front, which holds every client and imports no torch.
Invariant: a prompt has exactly one beginning-of-sequence token where the model wants one, whoever
wrote it there: the client, the chat template or this (F26).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from python_backend.text.chat_template import ChatTemplate
from python_backend.text.detokenizer import Detokenizer, TokenBytes
from router_backend.core.errors import ConfigError, RequestError

_BEFORE = ("", "\n", "(")
"""What a word may stand behind: nothing, a line's end, a character that joins no word."""


class ModelTokenizer:
    """A `TextCodec`; `config` is what tokenizer_config.json holds, `template` may be empty."""

    def __init__(self, backend: Tokenizer, config: Mapping[str, Any], template: str = "") -> None:
        self._backend = backend
        self._names = _special_names(config)
        added = backend.get_added_tokens_decoder()
        self._special = frozenset(token_id for token_id, token in added.items() if token.special)
        written = json.loads(backend.to_str())
        self._token_bytes = TokenBytes(written["decoder"])
        self._bos_id = self._wanted_bos(config)
        self._unknown_id = _unknown_id(backend, written["model"])
        self._chat = ChatTemplate(template, self._names) if template else None

    @property
    def vocab_size(self) -> int:
        return self._backend.get_vocab_size(with_added_tokens=True)

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that have no text."""
        return self._special

    def tokens(self) -> dict[int, bytes]:
        """Every token by id, as the bytes that it stands for."""
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        return {index: self._bytes_of(index, token) for token, index in vocabulary.items()}

    @property
    def has_chat_template(self) -> bool:
        return self._chat is not None

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of `text`; special tokens that are written in it count as such.

        RequestError when the vocabulary has nothing for a part of it, not even an unknown token.
        """
        ids = self._ids(text)
        if self._bos_id is not None and ids[:1] != [self._bos_id]:
            ids.insert(0, self._bos_id)
        return tuple(ids)

    def spellings(self, text: str) -> tuple[tuple[int, ...], ...]:
        """As the tokenizer itself writes `text`, at a beginning and after other characters.

        A tokenizer that puts a space in front of every text shows the word without one only after another
        character. What needs an unknown token has no spelling: it would stand for other words too.
        """
        bare = text.lstrip(" ")
        forms = (bare, " " + bare) if bare else (text,)
        runs = (self._after(before, form) for form in forms for before in _BEFORE)
        return tuple(dict.fromkeys(run for run in runs if run))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        if self._chat is None:
            raise RequestError("messages: the model has no chat template: send the prompt as text")
        return self._chat.render(messages, tools)

    def decode(self, token_ids: Iterable[int]) -> str:
        return self.text_source().decode(token_ids)

    def spelling(self, token_id: int) -> bytes:
        token = self._backend.id_to_token(token_id)
        return b"" if token is None else self._bytes_of(token_id, token)

    def text_source(self) -> Detokenizer:
        return Detokenizer(self._backend, self._token_bytes, self._special)

    def _after(self, before: str, form: str) -> tuple[int, ...]:
        """Ids of `form` behind `before`; none where the tokens do not part between the two."""
        try:
            head, ids = self._ids(before), self._ids(before + form)
        except RequestError:
            return ()
        parts_there = ids[: len(head)] == head and self._unknown_id not in ids
        return tuple(ids[len(head) :]) if parts_there else ()

    def _ids(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except Exception as error:  # the library raises nothing more special
            raise RequestError(f"prompt: the model's tokenizer cannot encode it: {error}") from error
        return ids

    def _bytes_of(self, token_id: int, token: str) -> bytes:
        data = None if token_id in self._special else self._token_bytes.of(token)
        return token.encode() if data is None else data

    def _wanted_bos(self, config: Mapping[str, Any]) -> int | None:
        """What the tokenizer itself puts in front, or the configured token if `add_bos_token` says so."""
        bos: int | None = self._backend.token_to_id(self._names.get("bos_token", ""))
        leading = self._backend.encode("", add_special_tokens=True).ids[:1]
        if bos is not None and (config.get("add_bos_token") or leading == [bos]):
            return bos
        return None


def load_tokenizer(directory: Path) -> ModelTokenizer:
    """The tokenizer of a Hugging Face model directory; ConfigError names the file that is at fault."""
    path = directory / "tokenizer.json"
    try:
        backend = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: point tokenizer_dir at a model directory") from error
    except Exception as error:  # the library raises nothing more special
        raise ConfigError(f"{path}: not a tokenizer: {error}") from error
    config = {**_json(directory / "special_tokens_map.json"), **_json(directory / "tokenizer_config.json")}
    return ModelTokenizer(backend, config, _template(directory, config))


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected an object, found {type(found).__name__}")
    return found


def _template(directory: Path, config: Mapping[str, Any]) -> str:
    path = directory / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    found = config.get("chat_template") or ""
    if isinstance(found, list):
        named = {entry["name"]: entry["template"] for entry in found}
        return str(named.get("default", ""))
    return str(found)


def _unknown_id(backend: Tokenizer, model: Mapping[str, Any]) -> int | None:
    """The token for what the vocabulary has nothing for, by `model`, the tokenizer file's own section."""
    index = model.get("unk_id")
    found: int | None = backend.token_to_id(model.get("unk_token") or "") if index is None else index
    return found


def _special_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Special tokens by name; files write them as text or as an object with `content`."""
    names = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(name)
        content = token.get("content") if isinstance(token, dict) else token
        if isinstance(content, str):
            names[name] = content
    return names
