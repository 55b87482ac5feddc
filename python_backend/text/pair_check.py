"""Whether models can write one text together: the same ids must mean the same bytes to all of them.

Pure: works on vocabularies that were read before. Rows of an output layer beyond the tokenizer are
padding that training left there (151936 and 152064 in one family): they are cut off, never compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from router_backend.core.errors import ConfigError

NAMED_MAX = 3
"""How many differing ids a refusal shows."""


@dataclass(frozen=True, slots=True)
class ModelVocabulary:
    """`tokens` by id, each as the bytes it stands for; `rows` is the width of the model's logits."""

    name: str
    tokens: Mapping[int, bytes]
    special: frozenset[int]
    rows: int
    eos_ids: frozenset[int] = field(default=frozenset())

    @property
    def size(self) -> int:
        """The real vocabulary: ids at or above it are padding."""
        return min(max(self.tokens, default=-1) + 1, self.rows)


def shared_vocabulary(vocabularies: Sequence[ModelVocabulary]) -> int:
    """How many ids, from 0 on, mean the same to all; ConfigError names the first that do not.

    A model whose end tokens all lie beyond the shared ids could never end an answer and is refused too.
    """
    size = min(vocabulary.size for vocabulary in vocabularies)
    first, *others = vocabularies
    for other in others:
        differing = list(islice(_differences(first, other, size), NAMED_MAX))
        if differing:
            raise ConfigError(
                f"models {first.name!r} and {other.name!r} do not share a vocabulary: "
                f"{'; '.join(differing)}: choose models with one tokenizer"
            )
    for vocabulary in vocabularies:
        if vocabulary.eos_ids and min(vocabulary.eos_ids) >= size:
            beyond = f"its end tokens {sorted(vocabulary.eos_ids)} are not below {size}"
            raise ConfigError(f"model {vocabulary.name!r}: {beyond}, the vocabulary that all models share")
    return size


def _differences(first: ModelVocabulary, other: ModelVocabulary, size: int) -> Iterator[str]:
    for token_id in range(size):
        ours, theirs = (vocabulary.tokens.get(token_id) for vocabulary in (first, other))
        if ours != theirs:
            yield f"id {token_id} is {_shown(ours)} and {_shown(theirs)}"
        elif (token_id in first.special) != (token_id in other.special):
            where = first if token_id in first.special else other
            yield f"id {token_id}, {_shown(ours)}, is a special token of {where.name!r} only"


def _shown(token: bytes | None) -> str:
    return "no token" if token is None else repr(token.decode("utf-8", "backslashreplace"))
