"""The administrator speaks Triton's HTTP protocol and passes on its words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tools.serving.admin import Admin, AdminError, peers_up

METRICS = """\
# TYPE token_router_peer_up gauge
token_router_peer_up{door="token_router",model="small"} 1
token_router_peer_up{door="token_router",model="large"} 1
token_router_peer_up{door="router",model="large"} 0
token_router_live_requests{door="router"} 0
"""


class Triton(BaseHTTPRequestHandler):
    """Answers like Triton: metrics, and a load that fails for a model called `bad`."""

    seen: list[str]
    keys: list[str | None]

    def do_GET(self) -> None:
        self.reply(200, METRICS)

    def do_POST(self) -> None:
        self.seen.append(self.path)
        self.keys.append(self.headers.get("x-admin-key"))
        self.rfile.read(int(self.headers["Content-Length"]))
        is_bad = "/bad/" in self.path
        self.reply(400 if is_bad else 200, '{"error": "no such model"}' if is_bad else "")

    def reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def admin() -> Iterator[Admin]:
    Triton.seen, Triton.keys = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Triton)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Admin(url, f"{url}/metrics", timeout_s=10.0)
    server.shutdown()
    thread.join()
    server.server_close()


def test_load_and_unload_ask_triton_by_the_models_name(admin: Admin) -> None:
    admin.unload("large")
    admin.load("large")
    assert Triton.seen == ["/v2/repository/models/large/unload", "/v2/repository/models/large/load"]


def test_a_key_opens_restricted_endpoints(admin: Admin) -> None:
    replace(admin, headers={"x-admin-key": "secret"}).load("large")
    admin.load("large")
    assert Triton.keys == ["secret", None]


def test_a_refusal_carries_tritons_words(admin: Admin) -> None:
    with pytest.raises(AdminError, match="400: no such model"):
        admin.load("bad")


def test_a_model_is_up_when_every_door_hears_it(admin: Admin) -> None:
    assert admin.peers_up() == {"small": True, "large": False}


def test_metrics_without_peers_say_nothing() -> None:
    assert peers_up("# nothing\n") == {}


def test_an_unreachable_server_is_an_error(admin: Admin) -> None:
    with pytest.raises(AdminError, match="127"):
        Admin("http://127.0.0.1:1", "http://127.0.0.1:1/metrics", timeout_s=1.0).load("large")


def test_a_reply_that_is_not_json_is_passed_on_as_it_is() -> None:
    class Plain(Triton):
        def do_POST(self) -> None:
            self.reply(503, "busy")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    with pytest.raises(AdminError, match="503: busy"):
        Admin(url, url, timeout_s=10.0).load("large")
    thread.join()
    server.server_close()
