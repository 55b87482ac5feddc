"""Standard serving: one prefix-caching server per model, called for one token at a time.

The dispatcher keeps the text, flips the coin after every token of the small model and asks the large one's
server for the next token instead. Every call is a new request to its server: it is admitted, its prefix is
looked up, and what the cache does not hold is computed again. The servers differ, the dispatcher does not.
"""

from __future__ import annotations

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

    small: OneTokenServer
    large: OneTokenServer
    session: aiohttp.ClientSession
    processes: Sequence[int]

    def pids(self) -> Sequence[int]:
        return self.processes

    async def answer(self, question: Question) -> AsyncIterator[tuple[int, int]]:
        coins, ids = question.coins(), list(question.ids)
        for _ in range(question.output_tokens):
            token = await self._next_token(self.small, ids, question.client)
            is_large = coins.random() < question.route_probability
            if is_large:
                token = await self._next_token(self.large, ids, question.client)
            ids.append(token)
            yield 1, int(is_large)

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
