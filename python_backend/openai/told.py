"""Answers in OpenAI's shapes, whole and in chunks, with our `x_router` beside them.

Pure: from results of the client to JSON objects. The invariant: what the chunks of a stream say together is
what the whole answer says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from pydantic import BaseModel, ConfigDict

from python_backend.client import Answer, Chunk, Description, Ending, Likely, TokenReport

LOGPROB_MIN = -9999.0


class Told(BaseModel):
    model_config = ConfigDict(extra="allow")


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Routing(BaseModel):
    """Who wrote the answer."""

    authors: list[str]
    """The model that wrote each token."""
    chars: list[int]
    """Characters of the answer per token: they divide its text (behind an echo)."""
    share: dict[str, float]
    """The part of the tokens that each model wrote."""
    handoffs: int
    discarded_tokens: int
    stop_text: str | None = None
    seed: int
    """Whoever sends it with the same request gets the same answer."""


class Reply(Told):
    """A whole answer; `choices` holds exactly one."""

    id: str
    object: str
    created: int
    model: str
    choices: list[dict[str, Any]]
    usage: Usage
    x_router: Routing


class ModelCard(Told):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "token-router"
    x_router: dict[str, Any]


class ModelList(Told):
    object: str = "list"
    data: list[ModelCard]


@dataclass(frozen=True, slots=True)
class Heading:
    """What all parts of one answer begin with."""

    id: str
    created: int
    model: str
    models: tuple[str, ...]
    is_chat: bool
    echo: str = ""

    def name(self, author: int) -> str:
        return self.models[author] if author < len(self.models) else f"model {author}"

    def names(self, authors: Sequence[int]) -> list[str]:
        return [self.name(author) for author in authors]

    def line(self, is_whole: bool) -> dict[str, Any]:
        chat = "chat.completion" if is_whole else "chat.completion.chunk"
        kind = chat if self.is_chat else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def whole(heading: Heading, answer: Answer) -> dict[str, Any]:
    """The JSON object of an answer that does not stream."""
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    shown = {"message": message} if heading.is_chat else {"text": heading.echo + answer.text}
    logprobs = told_logprobs(heading, answer.logprobs, answer.chars, 0)
    choice = {"index": 0, **shown, "logprobs": logprobs, "finish_reason": answer.ending.reason}
    tally = Tally(answer.prompt_tokens, list(answer.authors))
    routing = {"authors": heading.names(answer.authors), "chars": list(answer.chars)}
    return {
        **heading.line(is_whole=True),
        "choices": [choice],
        "usage": tally.usage(),
        "x_router": {**routing, **tally.routing(heading, answer.ending)},
    }


@dataclass(slots=True)
class Tally:
    """What has come so far."""

    prompt_tokens: int = 0
    authors: list[int] = field(default_factory=list)
    chars: int = 0

    def add(self, chunk: Chunk) -> None:
        self.prompt_tokens += chunk.prompt_tokens
        self.authors += chunk.authors
        self.chars += sum(chunk.chars)

    def usage(self) -> dict[str, int]:
        prompt, answer = self.prompt_tokens, len(self.authors)
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

    def routing(self, heading: Heading, ending: Ending) -> dict[str, Any]:
        counts, total = Counter(self.authors), max(1, len(self.authors))
        return {
            "share": {name: counts[index] / total for index, name in enumerate(heading.models)},
            "handoffs": ending.handoffs,
            "discarded_tokens": ending.discarded_tokens,
            "stop_text": ending.stop_text or None,
            "seed": ending.seed,
        }


@dataclass(slots=True)
class Script:
    """The chunks of one stream, in order."""

    heading: Heading
    has_usage: bool
    """A chunk with the usage comes last; all others say null."""
    tally: Tally = field(default_factory=Tally)
    _is_first: bool = True

    def chunk(self, chunk: Chunk) -> dict[str, Any]:
        """What is told for one response of the door."""
        heading = self.heading
        logprobs = told_logprobs(heading, chunk.logprobs, chunk.chars, self.tally.chars)
        self.tally.add(chunk)
        told = {"authors": heading.names(chunk.authors), "chars": list(chunk.chars)}
        if chunk.ending is not None:
            told |= self.tally.routing(heading, chunk.ending)
        reason = chunk.ending.reason if chunk.ending else None
        choice = {"index": 0, **self._shown(chunk.text), "logprobs": logprobs, "finish_reason": reason}
        self._is_first = False
        return {**heading.line(is_whole=False), "choices": [choice], **self._usage(), "x_router": told}

    def last(self) -> list[dict[str, Any]]:
        """What follows the ending."""
        if not self.has_usage:
            return []
        return [{**self.heading.line(is_whole=False), "choices": [], "usage": self.tally.usage()}]

    def _shown(self, text: str) -> dict[str, Any]:
        if not self.heading.is_chat:
            return {"text": self.heading.echo + text if self._is_first else text}
        role = {"role": "assistant"} if self._is_first else {}
        return {"delta": {**role, "content": text}}

    def _usage(self) -> dict[str, None]:
        return {"usage": None} if self.has_usage else {}


def told_logprobs(
    heading: Heading, reports: Sequence[TokenReport], chars: Sequence[int], offset: int
) -> dict[str, Any] | None:
    """Of these tokens, the first of which begins at character `offset`; None where none were asked for."""
    if not reports:
        return None
    if heading.is_chat:
        content = [{**_likely(one.own), "top_logprobs": [*map(_likely, one.top)]} for one in reports]
        return {"content": content, "refusal": None}
    return {
        "tokens": [one.own.text for one in reports],
        "token_logprobs": [_finite(one.own.logprob) for one in reports],
        "top_logprobs": [{top.text: _finite(top.logprob) for top in one.top} for one in reports],
        "text_offset": [*accumulate(chars[:-1], initial=offset)],
    }


def _likely(one: Likely) -> dict[str, Any]:
    return {"token": one.text, "logprob": _finite(one.logprob), "bytes": list(one.spelling)}


def _finite(logprob: float) -> float:
    """JSON has no infinity."""
    return max(logprob, LOGPROB_MIN)


def model_list(name: str, server: Description, created: int) -> dict[str, Any]:
    """The one model that is served, and what it is made of."""
    made_of = {
        "models": list(server.models),
        "policy": server.policy,
        "cutoff": server.cutoff,
        "cutoff_range": server.cutoff_range,
    }
    card = {"id": name, "object": "model", "created": created, "owned_by": "token-router"}
    return {"object": "list", "data": [{**card, "x_router": made_of}]}
