"""One HTTP request's way to the text door and back: bounds, disconnects, whole answers and event streams.

Owns the count of open requests. Must never keep a request open at the door whose client has gone. The
invariant: every answer that was begun is over, or cancelled, when its HTTP request is.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from python_backend.client import (
    AsyncStream,
    AsyncTokenRouterClient,
    Chunk,
    ClientError,
    Description,
    Ending,
    Options,
    Prompt,
)
from python_backend.openai.asked import ChatRequest, CompletionRequest
from python_backend.openai.faults import ApiError, of_client
from python_backend.openai.told import Heading, Script, whole

Found = TypeVar("Found")
DESCRIPTION_S = 5.0
"""How long what the server said of itself is believed."""
EVENT_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE = "data: [DONE]\n\n"


class Gone(Exception):
    """The HTTP client has left; there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class Asking:
    """A request that may be sent."""

    heading: Heading
    prompt: Prompt
    options: Options
    has_usage: bool


class Door:
    """What the routes share: the client, and how many requests are open."""

    def __init__(self, client: AsyncTokenRouterClient, name: str, open_max: int) -> None:
        self.client = client
        self.name = name
        self._open_max = open_max
        self._open = 0
        self._described = Description()
        self._described_until = 0.0

    async def description(self) -> Description:
        """Asked anew after some seconds: another server may answer at the same address."""
        if time.monotonic() >= self._described_until:
            self._described = await self.client.describe()
            self._described_until = time.monotonic() + DESCRIPTION_S
        return self._described

    async def answer(self, request: Request, body: ChatRequest | CompletionRequest) -> Response:
        """The HTTP response; ApiError or ClientError where there is none."""
        if body.model != self.name:
            known = f"model: {body.model!r} does not exist: use {self.name!r}"
            raise ApiError(404, "model_not_found", known, "model")
        with self._counted() as opened:
            server = await self.description()
            asking = Asking(
                self._heading(body, server),
                body.prompt_for_door(),
                body.options(server),
                body.has_usage_chunk,
            )
            if body.stream:
                return await self._streamed(request, asking, opened)
            found = await unless_gone(request, self.client.generate(asking.prompt, asking.options))
            must_be_whole(found.ending)
            return _json(whole(asking.heading, found))

    async def _streamed(self, request: Request, asking: Asking, opened: Opened) -> Response:
        """Errors before the first chunk still have a status of their own."""
        stream = self.client.stream(asking.prompt, asking.options)
        try:
            first = await unless_gone(request, anext(stream))
        except BaseException:
            await stream.__aexit__(None, None, None)
            raise
        opened.keep()
        return EventStream(stream, events(first, stream, Script(asking.heading, asking.has_usage)), opened)

    def _heading(self, body: ChatRequest | CompletionRequest, server: Description) -> Heading:
        is_chat = isinstance(body, ChatRequest)
        name = ("chatcmpl-" if is_chat else "cmpl-") + uuid.uuid4().hex
        echo = body.text if isinstance(body, CompletionRequest) and body.echo else ""
        return Heading(name, int(time.time()), self.name, server.models, is_chat, echo)

    @contextmanager
    def _counted(self) -> Iterator[Opened]:
        if self._open >= self._open_max:
            full = f"{self._open} requests are open here, as many as may be: try again later"
            raise ApiError(429, "TR_QUEUE_FULL", full)
        self._open += 1
        opened = Opened(self._close)
        try:
            yield opened
        finally:
            if not opened.is_kept:
                opened.close()

    def _close(self) -> None:
        self._open -= 1


class Opened:
    """One counted request; a stream keeps it open longer than its route."""

    def __init__(self, on_close: Callable[[], None]) -> None:
        self.is_kept = False
        self._on_close: Callable[[], None] | None = on_close

    def keep(self) -> None:
        self.is_kept = True

    def close(self) -> None:
        if self._on_close is not None:
            self._on_close()
            self._on_close = None


class EventStream(StreamingResponse):
    """Server-sent events that end their request however they end, even if they were never begun."""

    def __init__(self, stream: AsyncStream, content: AsyncIterator[str], opened: Opened) -> None:
        super().__init__(content, media_type="text/event-stream", headers=EVENT_HEADERS)
        self._stream = stream
        self._opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._opened.close()
            self._stream.cancel()


async def events(first: Chunk, stream: AsyncStream, script: Script) -> AsyncIterator[str]:
    """The lines of a stream; an error on the way is its last event."""
    try:
        async with stream:
            yield event(script.chunk(checked(first)))
            async for chunk in stream:
                yield event(script.chunk(checked(chunk)))
    except ClientError as error:
        yield event(of_client(error).body())
    except ApiError as error:
        yield event(error.body())
    else:
        for line in script.last():
            yield event(line)
    yield DONE


def checked(chunk: Chunk) -> Chunk:
    if chunk.ending is not None:
        must_be_whole(chunk.ending)
    return chunk


def must_be_whole(ending: Ending) -> None:
    """ApiError for an answer that was given up at the server's side."""
    if ending.reason not in ("stop", "length"):
        raise ApiError(503, "TR_CANCELLED", f"the answer was given up: {ending.reason}")


async def unless_gone(request: Request, work: Awaitable[Found]) -> Found:
    """What `work` gives; Gone, and the work cancelled, if the HTTP client leaves before."""
    job, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((job, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise Gone
        return job.result()
    finally:
        for task in (job, leaving):
            task.cancel()
        await asyncio.gather(job, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    """The body was read before, so the next thing to hear is that the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def event(told: dict[str, Any]) -> str:
    return f"data: {json.dumps(told, separators=(',', ':'))}\n\n"


def _json(told: dict[str, Any]) -> Response:
    return Response(json.dumps(told), media_type="application/json")
