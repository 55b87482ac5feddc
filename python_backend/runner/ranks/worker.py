"""What every rank of an engine runs: take a step from the subserver, tell the others, execute.

Rank 0 holds the connection to the subserver; the others hear the feed from rank 0 and run it too, so
that collective operations inside the engine meet. It ends when the subserver's end closes. A failure
of the engine on rank 0 is an answer; on any other rank it ends that process, which the subserver sees.
"""

from __future__ import annotations

import contextlib
from multiprocessing.connection import Client, Connection

from python_backend.runner.base import ModelRunner
from python_backend.runner.ranks.base import Communicator
from python_backend.runner.ranks.frames import (
    pack_info,
    pack_output,
    unpack_feed,
    unpack_plan,
)
from router_backend.core.errors import ConfigError, RouterError, RunnerError

END = b""
"""The feed that ends a rank."""
ANSWER = b"+"
FAILURE = b"-"


def refuse(socket_path: str, error: ConfigError) -> None:
    """What a rank says instead of `serve` when its engine cannot be built."""
    with contextlib.suppress(ConnectionError):  # another rank was heard first
        connection = Client(socket_path, family="AF_UNIX")
        _post(connection, FAILURE, _words(error).encode())
        connection.close()


def serve(engine: ModelRunner, communicator: Communicator, socket_path: str) -> None:
    """Returns when the subserver has gone; `socket_path` is where it listens for rank 0."""
    try:
        if communicator.rank:
            _follow(engine, communicator)
        else:
            _lead(engine, communicator, Client(socket_path, family="AF_UNIX"))
    finally:
        engine.close()
        communicator.close()


def _follow(engine: ModelRunner, communicator: Communicator) -> None:
    while feed := communicator.broadcast(None):
        engine.execute(unpack_feed(feed))


def _lead(engine: ModelRunner, communicator: Communicator, connection: Connection) -> None:
    _post(connection, ANSWER, pack_info(engine.info))
    while (frame := _next(connection)) is not None:
        plan, feed = unpack_plan(frame)
        communicator.broadcast(feed)
        try:
            answer = ANSWER, pack_output(engine.execute(plan))
        except RunnerError as error:
            answer = FAILURE, _words(error).encode()
        _post(connection, *answer)
    communicator.broadcast(END)
    connection.close()


def _next(connection: Connection) -> bytes | None:
    """The subserver's next plan; None when it closed its end or died."""
    try:
        return connection.recv_bytes()
    except (EOFError, ConnectionError):
        return None


def _post(connection: Connection, kind: bytes, body: bytes) -> None:
    connection.send_bytes(kind + body)


def _words(error: RouterError) -> str:
    """The message without the code, which the subserver puts before it again."""
    return str(error).removeprefix(f"{error.code}: ")
