"""Standard serving: one prefix-caching server per model, called for one token at a time.

The dispatcher keeps the text, flips the coin after every token and asks the server of the model that writes
next. Every call is a new request to its server: it is admitted, its prefix is
looked up, and what the cache does not hold is computed again. The servers differ, the dispatcher does not.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from tools.peers.workload import Question


class StandardError(RuntimeError):
    """A server refused a call, or is gone."""


class OneTokenServer(Protocol):
    """One model's server: where to post a call, what to post, and where the token is in its answer."""

    @property
    def url(self) -> str: ...

    def body(self, ids: Sequence[int], client: int) -> Mapping[str, Any]:
        """For the greedy token after `ids`; `client` tells callers apart where a server pins caches."""
        ...

    def token(self, answer: Mapping[str, Any]) -> int: ...


@dataclass(slots=True)
class Standard:
    """Two servers and the dispatcher in this process."""

    servers: Sequence[OneTokenServer]
    """Of the small model, of the large one."""
    session: aiohttp.ClientSession
    processes: Sequence[int]

    def pids(self) -> Sequence[int]:
        """The dispatcher, this process, is a part of it."""
        return [os.getpid(), *self.processes]

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        walk, ids, left = question.walk(), list(question.ids), question.output_tokens
        while left:
            writer = walk.writer
            token = await self._next_token(self.servers[writer], ids, question.client)
            if walk.is_committed():
                ids.append(token)
                left -= 1
                yield 1, writer

    async def _next_token(self, server: OneTokenServer, ids: Sequence[int], client: int) -> int:
        try:
            return await self._posted(server, ids, client)
        except aiohttp.ClientError as error:
            raise StandardError(f"{server.url}: {error!r}") from error

    async def _posted(self, server: OneTokenServer, ids: Sequence[int], client: int) -> int:
        async with self.session.post(server.url, json=server.body(ids, client)) as response:
            answer = await response.json(content_type=None)
            if response.status != 200:
                raise StandardError(f"{server.url} answered {response.status}: {answer}")
        return server.token(answer)


@dataclass(frozen=True, slots=True)
class Ours:
    """A subserver of ours asked directly: our engine and scheduler, with a prefix cache of whole blocks."""

    url: str

    def body(self, ids: Sequence[int], client: int) -> Mapping[str, Any]:
        return {"input_ids": list(ids), "request_output_len": 1, "ignore_eos": True}

    def token(self, answer: Mapping[str, Any]) -> int:
        return int(answer["output_ids"])


@dataclass(frozen=True, slots=True)
class Vllm:
    """vLLM's completions. It looks prefixes up by whole blocks and recomputes the rest of the last one."""

    url: str
    model: str

    def body(self, ids: Sequence[int], client: int) -> Mapping[str, Any]:
        return {
            "model": self.model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0.0,
            "ignore_eos": True,
            "return_token_ids": True,
        }

    def token(self, answer: Mapping[str, Any]) -> int:
        return int(answer["choices"][0]["token_ids"][0])


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """llama.cpp's own endpoint. A slot is pinned to each client and keeps its KV: the strong baseline."""

    url: str

    def body(self, ids: Sequence[int], client: int) -> Mapping[str, Any]:
        return {
            "prompt": list(ids),
            "n_predict": 1,
            "cache_prompt": True,
            "id_slot": client,
            "return_tokens": True,
            "temperature": 0.0,
            "ignore_eos": True,
        }

    def token(self, answer: Mapping[str, Any]) -> int:
        return int(answer["tokens"][0])
