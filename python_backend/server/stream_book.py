"""Which request ids are in use at one door.

Answers "which streams does this id or uid mean" for explicit cancellation, and refuses an id that a live
request already has. Called from Triton's execute thread, the sender thread and the cancel bridge.
"""

from __future__ import annotations

import threading

from python_backend.server.response_stream import ResponseStream
from router_backend.core.errors import RequestError


class DuplicateIdError(RequestError):
    """A live request has this id already."""

    code = "TR_ALREADY_EXISTS"


class StreamBook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[str, ResponseStream] = {}
        self._by_uid: dict[int, ResponseStream] = {}

    def enter(self, stream: ResponseStream, client_id: str, uid: int | None) -> None:
        """Until the stream closes, it is found under its ids. An empty id is nobody's; DuplicateIdError."""
        with self._lock:
            if client_id in self._by_id:
                raise DuplicateIdError(f"id: {client_id!r} belongs to a request that is still running")
            if client_id:
                self._by_id[client_id] = stream
            if uid is not None:
                self._by_uid[uid] = stream
        stream.on_close = lambda: self._leave(client_id, uid)

    def by_id(self, client_id: str) -> ResponseStream | None:
        with self._lock:
            return self._by_id.get(client_id)

    def by_uid(self, uid: int) -> ResponseStream | None:
        with self._lock:
            return self._by_uid.get(uid)

    def _leave(self, client_id: str, uid: int | None) -> None:
        with self._lock:
            self._by_id.pop(client_id, None)
            if uid is not None:
                self._by_uid.pop(uid, None)
