"""The client for asyncio: many requests at once over one connection.

Every request has a gRPC stream of its own, because cancelling a stream cancels all that is on it. Must be
used in the event loop that it was made in.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2, service_pb2_grpc

from python_backend.client import wire
from python_backend.client.errors import ClientError, TimedOut, Unavailable, from_rpc, is_of_absence
from python_backend.client.options import ANY, Options, Prompt
from python_backend.client.results import Answer, Chunk, Description, joined
from python_backend.client.settings import CHANNEL_OPTIONS, CUT, DEFAULT, DOOR, Settings


class AsyncStream:
    """An answer under way: iterate over it. Leaving the block early or `cancel` end the request.

    After the last chunk the call is read to its end: Triton 2.51 may keep a request for ever whose stream is
    dropped just then, and would wait for it when it stops.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._has_ended = False
        """The last chunk came."""
        self._is_closed = False

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_ended:
            await self._drain()
        self.cancel()

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        if self._has_ended or self._is_closed:
            await self._drain()
            raise StopAsyncIteration
        try:
            message = await self._call.read()
        except grpc.RpcError as error:
            raise from_rpc(error) from error
        if message is grpc.aio.EOF:
            raise Unavailable("TR_UNREACHABLE", CUT)
        try:
            found, self._has_ended = wire.chunk(message)
        except ClientError:
            self._has_ended = True
            raise
        return found

    def cancel(self) -> None:
        """End the request on every model; nothing if it is over. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            self._call.cancel()

    async def _drain(self) -> None:
        try:
            while not self._is_closed:
                self._is_closed = await self._call.read() is grpc.aio.EOF
        except grpc.RpcError as error:
            raise from_rpc(error) from error


class AsyncTokenRouterClient:
    """Requests to one server; `address` is host:port of its gRPC door."""

    def __init__(self, address: str = "127.0.0.1:8001", settings: Settings = DEFAULT) -> None:
        self._settings = settings
        secure = settings.credentials is not None
        open_channel = grpc.aio.secure_channel if secure else grpc.aio.insecure_channel
        given = (settings.credentials,) if secure else ()
        self._channel = open_channel(address, *given, options=CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def __aenter__(self) -> AsyncTokenRouterClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels what is open."""
        await self._channel.close()

    def stream(self, prompt: Prompt, options: Options = ANY) -> AsyncStream:
        """The answer as it is written; nothing is sent before the first chunk is awaited.

        Raises RequestRefused, Unavailable, TimedOut or ClientError, here or while iterating.
        """
        return AsyncStream(self._call(prompt, options, is_streaming=True))

    async def generate(self, prompt: Prompt, options: Options = ANY) -> Answer:
        """The whole answer at once; cancelling the task cancels the request. Raises like `stream`."""
        async with AsyncStream(self._call(prompt, options, is_streaming=False)) as chunks:
            return joined([chunk async for chunk in chunks])

    async def describe(self) -> Description:
        """What models and policy the server has."""
        asked = service_pb2.ModelConfigRequest(name=DOOR)
        try:
            found = await self._stub.ModelConfig(asked, timeout=self._settings.look_s)
        except grpc.RpcError as error:
            raise from_rpc(error) from error
        return wire.description(found)

    async def is_ready(self) -> bool:
        """Whether the door and, of every model behind it, at least one replica are loaded.

        False also when nobody answers in time; ClientError when the server refuses to say.
        """
        try:
            needed = ((DOOR,), *(await self.describe()).subservers)
            return all([any([await self._is_loaded(name) for name in names]) for names in needed])
        except (Unavailable, TimedOut):
            return False

    async def _is_loaded(self, name: str) -> bool:
        asked = service_pb2.ModelReadyRequest(name=name)
        try:
            found = await self._stub.ModelReady(asked, timeout=self._settings.look_s)
        except grpc.RpcError as error:
            if is_of_absence(error):
                return False
            raise from_rpc(error) from error
        return bool(found.ready)

    def _call(self, prompt: Prompt, options: Options, *, is_streaming: bool) -> Any:
        timed = self._settings.timed(options)
        request = wire.request(DOOR, prompt, timed, is_streaming)
        return self._stub.ModelStreamInfer(_once(request), timeout=self._settings.limit_s(timed))


async def _once(request: Any) -> AsyncIterator[Any]:
    yield request
