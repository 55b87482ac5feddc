"""One number for a vocabulary, so that a head is never used with token ids it was not trained on.

Reads tokenizer.json only. Two files of different layout with the same ids have the same number.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from router_backend.core.errors import ConfigError

TOKENIZER_FILE = "tokenizer.json"


def tokens_by_id(tokenizer_dir: Path) -> dict[int, str]:
    """Every token of the vocabulary, added ones included; ConfigError names the file and the key."""
    path = tokenizer_dir / TOKENIZER_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        vocab = data["model"]["vocab"]
        tokens = _listed(vocab) if isinstance(vocab, list) else {int(i): str(t) for t, i in vocab.items()}
        for added in data.get("added_tokens") or ():
            tokens[int(added["id"])] = str(added["content"])
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: no usable model.vocab: {error!r}") from error
    return tokens


def tokenizer_sha(tokenizer_dir: Path) -> str:
    """64 hex digits over (id, token) in the order of ids."""
    tokens = tokens_by_id(tokenizer_dir)
    return sha256(json.dumps(sorted(tokens.items())).encode()).hexdigest()


def _listed(vocab: list[Any]) -> dict[int, str]:
    """A unigram vocabulary: (token, score) in the order of ids."""
    return {index: str(entry[0]) for index, entry in enumerate(vocab)}
