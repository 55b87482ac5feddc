"""A decoupled Triton model over a service that answers: the front, or a subserver called alone.

Composes the request reader, the sender thread, the metrics thread and (in the ensemble) the cancel bridge
around a `Service`. `execute` returns at once, so admission, queues and deadlines are the service's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from python_backend.loops.base import Ask, ResponsePort
from python_backend.roles.cancel_bridge import CancelListener
from python_backend.roles.interpreter import settle
from python_backend.server.contracts import ROUTER, TEXT, TOKENS
from python_backend.server.metrics import MetricsMirror
from python_backend.server.outputs import RouterShape, Shape, TextShape, TokensShape
from python_backend.server.response_stream import FAULTS, INTERNAL, ResponseStream, Sender, refusal
from python_backend.server.stream_book import StreamBook
from python_backend.server.tensors import (
    Asked,
    Envelope,
    Reader,
    reader,
    router_asked,
    text_asked,
    tokens_asked,
)
from python_backend.server.values import Array
from python_backend.server.wire import Wire, envelope, input_arrays
from router_backend.core.errors import RequestError, RouterError

LOG = logging.getLogger(__name__)


class ShutdownError(RouterError):
    """The server is stopping."""

    code = "TR_SHUTDOWN"


class Service(Protocol):
    """What answers."""

    def start(self) -> None: ...

    def submit(self, ask: Ask, port: ResponsePort) -> object:
        """Returns at once with a handle; a RouterError, or a piece with an error later, is a refusal."""
        ...

    def cancel(self, handle: Any) -> None: ...

    def snapshot(self) -> Mapping[str, float]:
        """What it counts, for /metrics as `server.metrics.Snapshot`."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Tongue:
    """How one door reads requests and shapes answers."""

    read: Reader
    shape: Callable[[Asked], Shape]


TEXT_TONGUE = Tongue(reader(TEXT, text_asked), TextShape)
ROUTER_TONGUE = Tongue(reader(ROUTER, router_asked), RouterShape)
TOKENS_TONGUE = Tongue(reader(TOKENS, tokens_asked), TokensShape)
TONGUES = {"text": TEXT_TONGUE, "ensemble": ROUTER_TONGUE}


class Door:
    """The role of a decoupled model, from `start` to `stop`."""

    def __init__(
        self, service: Service, tongue: Tongue, cancel_poll_s: float, labels: Mapping[str, str]
    ) -> None:
        self._service = service
        self._tongue = tongue
        self._book = StreamBook()
        self._sender = Sender(cancel_poll_s, self._cancel)
        self._metrics = MetricsMirror(labels, self._samples)
        self._bridge: CancelListener | None = None

    def listen_for_cancels(self, bridge: CancelListener) -> None:
        self._bridge = bridge

    def start(self) -> None:
        settle()
        self._sender.start()
        self._service.start()
        self._metrics.start()
        if self._bridge is not None:
            self._bridge.start()

    def stop(self) -> None:
        """Ends what is still open with an error; nothing that matters may wait for this: it may never run."""
        if self._bridge is not None:
            self._bridge.stop()
        self._metrics.stop()
        self._service.stop()
        self._sender.stop(ShutdownError("the server is stopping"))

    def execute(self, requests: Sequence[Any]) -> None:
        for request in requests:
            self._admit(self._sender.open(Wire(request)), request)

    def cancel_uid(self, uid: int) -> None:
        """What the cancel bridge says: the ensemble's request `uid` has no client any more."""
        stream = self._book.by_uid(uid)
        if stream is not None:
            self._cancel(stream)

    def _admit(self, stream: ResponseStream, request: Any) -> None:
        try:
            self._submit(stream, input_arrays(request), envelope(request))
        except RouterError as error:
            stream.put(refusal(error))
        except FAULTS:
            LOG.exception("a request could not be read")
            stream.put(refusal(INTERNAL))

    def _submit(self, stream: ResponseStream, tensors: Mapping[str, Array], envelope: Envelope) -> None:
        asked = self._tongue.read(tensors, envelope)
        if asked.is_stop:
            self._stop_by_id(asked.ask.client_id)
            stream.put_empty()
            return
        self._book.enter(stream, asked.ask.client_id, asked.uid)
        stream.begin(self._tongue.shape(asked))
        stream.handle = self._service.submit(asked.ask, stream)

    def _stop_by_id(self, client_id: str) -> None:
        """TensorRT-LLM's way to cancel: `stop` with the id of the request that shall end."""
        if not client_id:
            raise RequestError("stop: needs the id of the request that shall end")
        stream = self._book.by_id(client_id)
        if stream is not None:
            self._cancel(stream)

    def _cancel(self, stream: ResponseStream) -> None:
        if stream.handle is not None:
            self._service.cancel(stream.handle)

    def _samples(self) -> Mapping[str, float]:
        streams = self._sender.streams()
        return {
            **self._service.snapshot(),
            "open_streams": len(streams),
            "unsent_responses": sum(stream.unsent for stream in streams),
            "unsent_bytes": sum(stream.unsent_bytes for stream in streams),
        }
