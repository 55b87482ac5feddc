"""The health check tells whether Triton is ready, and why it is not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from docker.healthcheck import main, reason


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server that says `status` to everything; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v2/health/ready" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield str(server.server_port)
        finally:
            server.shutdown()
            thread.join()


def test_ready_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200) as port:
        monkeypatch.setenv("HTTP_PORT", port)
        assert main() == 0


def test_not_ready_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(400) as port:
        monkeypatch.setenv("HTTP_PORT", port)
        assert main() == 1
        assert capsys.readouterr().err == f"port {port}: /v2/health/ready says 400\n"


def test_nobody_there_is_told() -> None:
    with answering(200) as port:
        pass
    assert reason({"HTTP_PORT": port}).startswith(f"no answer on port {port}: ")
