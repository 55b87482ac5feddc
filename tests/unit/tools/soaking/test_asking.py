"""A client hears text, ends and breaks as they are, and never waits longer than it may.

The server is a plain HTTP one that says what it is told to; gRPC is heard from a real one in `tests/server`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from tools.soaking import asking
from tools.soaking.asking import Left, Patience, Place, ask, tensor
from tools.soaking.work import Way

INPUTS = {"text_input": "turn 01", "max_tokens": 2}
SOON_S = 0.2


class Told(BaseHTTPRequestHandler):
    """Says `lines`, then waits for `go_on` before it ends the response."""

    lines: Sequence[bytes] = ()
    status = 200
    go_on = threading.Event()
    asked: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.path, json.loads(body)))
        self.send_response(self.status)
        self.end_headers()
        for line in self.lines:
            self.wfile.write(line + b"\n")
        self.wfile.flush()
        self.go_on.wait(30.0)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@contextmanager
def telling(*events: dict[str, Any], silent: bool = False, status: int = 200) -> Iterator[type[Told]]:
    go_on = threading.Event()
    if not silent:
        go_on.set()
    lines = [b"data: " + json.dumps(event).encode() for event in events]
    handler = type(
        "Telling", (Told,), {"lines": lines, "status": status, "go_on": go_on, "asked": [], "port": 0}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield handler
    finally:
        go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def place(handler: Any) -> Place:
    return Place(handler.port, 0, "ensemble")


def test_a_stream_is_text_and_one_end() -> None:
    with telling({"text_output": "95 "}, {"text_output": "03", "finish_reason": "length"}) as handler:
        heard = ask(place(handler), Way.HTTP_STREAM, INPUTS)

    assert (heard.text, heard.ends, heard.error) == ("95 03", 1, "")
    assert heard.ended_at >= heard.asked_at
    assert handler.asked == [("/v2/models/ensemble/generate_stream", {**INPUTS, "stream": True})]


def test_a_whole_answer_is_asked_for_without_a_stream() -> None:
    with telling({"text_output": "95 03", "finish_reason": "stop"}) as handler:
        heard = ask(place(handler), Way.HTTP_WHOLE, INPUTS)

    assert (heard.text, heard.ends) == ("95 03", 1)
    assert handler.asked == [("/v2/models/ensemble/generate", {**INPUTS, "stream": False})]


@pytest.mark.parametrize(
    "event",
    [
        {"error": "TR_PEER_LOST: large is gone"},
        {"finish_reason": "error", "error_message": "TR_PEER_LOST: x"},
    ],
)
def test_an_error_is_an_end_at_either_door(event: dict[str, Any]) -> None:
    with telling({"text_output": "95 "}, event, status=400) as handler:
        heard = ask(place(handler), Way.HTTP_STREAM, INPUTS)

    assert (heard.text, heard.ends, heard.error[:12]) == ("95 ", 1, "TR_PEER_LOST")


def test_two_ends_are_two_and_a_cut_stream_has_none() -> None:
    end = {"text_output": "", "finish_reason": "length"}
    with telling(end, end) as handler:
        assert ask(place(handler), Way.HTTP_STREAM, INPUTS).ends == 2
    with telling({"text_output": "95 "}) as handler:
        heard = ask(place(handler), Way.HTTP_STREAM, INPUTS)
    assert (heard.text, heard.ends, heard.is_silent, heard.has_left) == ("95 ", 0, False, False)


def test_words_that_are_no_json_and_a_server_that_is_not_there_are_told() -> None:
    with telling() as handler:
        handler.lines = [b"<html>"]
        heard = ask(place(handler), Way.HTTP_STREAM, INPUTS)
        gone = place(handler)
    assert (heard.ends, "JSONDecodeError" in heard.error) == (0, True)
    heard = ask(gone, Way.HTTP_STREAM, INPUTS)
    assert (heard.ends, heard.error.startswith("connection: ")) == (0, True)


def test_a_client_goes_away_at_its_moment_in_mid_stream() -> None:
    with telling({"text_output": "95 "}, silent=True) as handler:
        heard = ask(place(handler), Way.HTTP_STREAM, INPUTS, leave_s=SOON_S)

    assert (heard.has_left, heard.is_silent, heard.ends) == (True, False, 0)
    assert heard.ended_at - heard.asked_at >= SOON_S


def test_a_request_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SILENT_S", SOON_S)
    with telling({"text_output": "95 "}, silent=True) as handler:
        heard = ask(place(handler), Way.HTTP_STREAM, INPUTS)

    assert (heard.text, heard.has_left, heard.is_silent, heard.ends) == ("95 ", False, True, 0)


def test_patience_ends_with_the_earlier_of_two_moments() -> None:
    now = 10.0
    stays = Patience(10.0, None, lambda: now)
    leaves = Patience(10.0, 2.0, lambda: now)
    assert (stays.left_s(), leaves.left_s()) == (asking.SILENT_S, 2.0)

    now = 12.0
    with pytest.raises(Left):
        leaves.left_s()
    now = 10.0 + asking.SILENT_S
    with pytest.raises(TimeoutError):
        stays.left_s()


def test_tensors_have_the_kinds_and_shapes_of_their_door() -> None:
    found = [tensor("token_router", "text_input", "a"), tensor("ensemble", "stream", True)]
    found.append(tensor("ensemble", "max_tokens", 7))

    assert [(one.datatype(), one.shape()) for one in found] == [
        ("BYTES", [1]),
        ("BOOL", [1, 1]),
        ("INT32", [1, 1]),
    ]
    assert np.frombuffer(found[2]._get_content(), np.int32).tolist() == [7]
