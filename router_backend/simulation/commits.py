"""The one true text of every request, as the commits write it.

Whatever any model is fed, holds or sends is compared with it. Only commits extend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Sequences
from dataclasses import dataclass, field

from router_backend.core.request import Request, RequestKey
from router_backend.simulation.script import EMPTY, extended


@dataclass(slots=True)
class Text:
    """`tokens[i]` at absolute position i, and `contexts[i]`, what a KV slot of position i must stand for."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    """Model of each answer token that was committed in this life."""
    given: int = 0
    """Tokens of the answer that a former life had committed."""

    def extend(self, token_ids: Iterable[int]) -> None:
        for token_id in token_ids:
            self.tokens.append(token_id)
            self.contexts.append(extended(self.contexts[-1] if self.contexts else EMPTY, token_id))

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.request.prompt_len :]


@dataclass(slots=True)
class CommitLog:
    """Texts by life: an id may be used again under another epoch."""

    texts: dict[RequestKey, Text] = field(default_factory=dict)

    def __getitem__(self, key: RequestKey) -> Text:
        return self.texts[key]

    def open(self, request: Request, answer: Sequences[int] = ()) -> None:
        """Begin the text with the prompt and what a former life has committed."""
        assert request.key not in self.texts, f"{request.key} is used twice"
        text = self.texts[request.key] = Text(request, given=len(answer))
        text.extend((*request.prompt, *answer))
