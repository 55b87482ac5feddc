"""Serves OpenAI's HTTP API, and a playground page, in front of a running Triton server.

`make serve` starts it beside Triton; alone it needs nothing but the address of Triton's gRPC port. SIGTERM or
Ctrl-C lets open answers finish. API keys come from a file, because a command line is for everybody to see.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn

from python_backend.openai.app import ServerSettings, create_app

HOST = "127.0.0.1"
LOOK_S = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ServerFault(Exception):
    """It cannot serve; the message says what to do."""


def read_keys(path: Path | None) -> tuple[str, ...]:
    """One key a line; lines that begin with # say nothing."""
    if path is None:
        return ()
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except OSError as error:
        raise ServerFault(f"--api-keys {path}: {error.strerror}") from error
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ServerFault(f"--api-keys {path}: holds no key: write one a line, or leave the option out")
    return keys


def bound(host: str, port: int) -> socket.socket:
    """A listening socket; ServerFault names a port that cannot be had."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        cure = "choose another with --port (make serve OPENAI_PORT=...)"
        raise ServerFault(f"openai port {port} cannot be used ({error.strerror}): {cure}") from error
    listener.listen(1024)
    return listener


class OrderlyServer(uvicorn.Server):
    """Ends with status 0 after a signal: uvicorn's own way is to raise the signal again at the end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)


async def serve(server: uvicorn.Server, listener: socket.socket, parent: int | None) -> None:
    """Until a signal, or until `parent` is no longer this process's parent."""
    watch = asyncio.create_task(_watch(server, parent)) if parent is not None else None
    try:
        await server.serve(sockets=[listener])
    finally:
        if watch is not None:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch


async def _watch(server: uvicorn.Server, parent: int) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(LOOK_S)
    server.should_exit = server.force_exit = True


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an orderly end, 1 when it cannot serve."""
    options = _parser().parse_args(argv)
    try:
        settings = ServerSettings(
            options.triton, options.name, read_keys(options.api_keys), open_max=options.open_max
        )
        listener = bound(options.host, options.port)
    except ServerFault as error:
        print(f"openai_server: {error}", file=sys.stderr)
        return 1
    with listener:
        print(f"OpenAI API at http://{options.host}:{listener.getsockname()[1]}/v1", flush=True)
        config = uvicorn.Config(
            create_app(settings),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=options.drain_s,
        )
        asyncio.run(serve(OrderlyServer(config), listener, options.parent_pid))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.openai_server", description=__doc__)
    parser.add_argument(
        "--triton", default="127.0.0.1:8001", help="Triton's gRPC address (default: %(default)s)"
    )
    parser.add_argument("--host", default=HOST, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8003, help="0 takes a free one (default: %(default)s)")
    parser.add_argument(
        "--name", default="token_router", help="the model's name for clients (default: %(default)s)"
    )
    parser.add_argument("--api-keys", type=Path, help="file of keys, one a line; default: none is needed")
    parser.add_argument("--open-max", type=int, default=512, help="requests at once (default: %(default)s)")
    parser.add_argument("--drain-s", type=int, default=30, help="longest wait for open answers at the end")
    parser.add_argument("--parent-pid", type=int, help="end when this process is not the parent any more")
    return parser


if __name__ == "__main__":
    sys.exit(main())
