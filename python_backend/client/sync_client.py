"""The client for plain threads.

Many threads may use one client at once. A stream is read by one thread and may be cancelled by any.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

from python_backend.client import wire
from python_backend.client.errors import ClientError, TimedOut, Unavailable, from_rpc, is_of_absence
from python_backend.client.options import ANY, Options, Prompt
from python_backend.client.results import Answer, Chunk, Description, joined
from python_backend.client.settings import CHANNEL_OPTIONS, CUT, DEFAULT, DOOR, Settings


class Stream:
    """An answer under way: iterate over it. Leaving the block early or `cancel` end the request.

    After the last chunk the call is read to its end: Triton 2.51 may keep a request for ever whose stream is
    dropped just then, and would wait for it when it stops.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._has_ended = False
        """The last chunk came."""
        self._is_closed = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_ended:
            self._drain()
        self.cancel()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if self._has_ended or self._is_closed:
            self._drain()
            raise StopIteration
        message = self._read()
        if message is None:
            raise Unavailable("TR_UNREACHABLE", CUT)
        try:
            found, self._has_ended = wire.chunk(message)
        except ClientError:
            self._has_ended = True
            raise
        return found

    def cancel(self) -> None:
        """End the request on every model; nothing if it is over. Idempotent, from any thread."""
        if not self._is_closed:
            self._is_closed = True
            self._call.cancel()

    def _drain(self) -> None:
        while not self._is_closed:
            self._is_closed = self._read() is None

    def _read(self) -> Any:
        """The next message, None at the end of the call."""
        try:
            return next(self._call, None)
        except grpc.RpcError as error:
            raise from_rpc(error) from error


class TokenRouterClient:
    """Requests to one server; `address` is host:port of its gRPC door."""

    def __init__(self, address: str = "127.0.0.1:8001", settings: Settings = DEFAULT) -> None:
        self._settings = settings
        secure = settings.credentials is not None
        open_channel = grpc.secure_channel if secure else grpc.insecure_channel
        given = (settings.credentials,) if secure else ()
        self._channel = open_channel(address, *given, options=CHANNEL_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self) -> TokenRouterClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what is open."""
        self._channel.close()

    def stream(self, prompt: Prompt, options: Options = ANY) -> Stream:
        """The answer as it is written; raises RequestRefused, Unavailable, TimedOut or ClientError, here or
        while iterating."""
        return Stream(self._call(prompt, options, is_streaming=True))

    def generate(self, prompt: Prompt, options: Options = ANY) -> Answer:
        """The whole answer at once; raises like `stream`."""
        with Stream(self._call(prompt, options, is_streaming=False)) as chunks:
            return joined(chunks)

    def describe(self) -> Description:
        """What models and policy the server has."""
        asked = service_pb2.ModelConfigRequest(name=DOOR)
        try:
            return wire.description(self._stub.ModelConfig(asked, timeout=self._settings.look_s))
        except grpc.RpcError as error:
            raise from_rpc(error) from error

    def is_ready(self) -> bool:
        """Whether the door and, of every model behind it, at least one replica are loaded.

        False also when nobody answers in time; ClientError when the server refuses to say.
        """
        try:
            needed = ((DOOR,), *self.describe().subservers)
            return all(any(map(self._is_loaded, names)) for names in needed)
        except (Unavailable, TimedOut):
            return False

    def _is_loaded(self, name: str) -> bool:
        asked = service_pb2.ModelReadyRequest(name=name)
        try:
            return bool(self._stub.ModelReady(asked, timeout=self._settings.look_s).ready)
        except grpc.RpcError as error:
            if is_of_absence(error):
                return False
            raise from_rpc(error) from error

    def _call(self, prompt: Prompt, options: Options, *, is_streaming: bool) -> Any:
        timed = self._settings.timed(options)
        request = wire.request(DOOR, prompt, timed, is_streaming)
        return self._stub.ModelStreamInfer(iter([request]), timeout=self._settings.limit_s(timed))
