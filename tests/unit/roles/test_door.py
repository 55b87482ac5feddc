"""A door between Triton's requests and a service."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from python_backend.loops.base import Ask, Finish, Piece, ResponsePort
from python_backend.roles.door import ROUTER_TONGUE, TEXT_TONGUE, TOKENS_TONGUE, Door, Tongue
from router_backend.core.effects import Reason
from router_backend.core.errors import CapacityError
from tests.fake_pb_utils import InferenceRequest, TritonError

WAIT_S = 5.0


class FakeService:
    """Records asks; `behave` answers one."""

    def __init__(self, behave: Callable[[Ask, ResponsePort], object]) -> None:
        self.behave = behave
        self.cancelled: list[object] = []
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def submit(self, ask: Ask, port: ResponsePort) -> object:
        self.behave(ask, port)
        return ("handle", ask.text or ask.input_ids)

    def cancel(self, handle: object) -> None:
        self.cancelled.append(handle)

    def snapshot(self) -> Mapping[str, float]:
        return {"live": 1.0}

    def stop(self) -> None:
        self.calls.append("stop")


class Request(InferenceRequest):
    """Tells when its FINAL was sent."""

    def wait(self) -> list[tuple[Any, int]]:
        until = threading.Event()
        for _ in range(int(WAIT_S / 0.01)):
            if self.sender.sent and self.sender.sent[-1][1]:
                return [
                    (r.error.message if r and r.error else r and r.values(), f) for r, f in self.sender.sent
                ]
            until.wait(0.01)
        raise AssertionError(f"no FINAL: {self.sender.sent}")


def answer(ask: Ask, port: ResponsePort) -> None:
    port.put(Piece(text="a"))
    until = threading.Event()
    while port.unsent:
        until.wait(0.001)
    port.put(Piece(text="b", finish=Finish(Reason.STOP)))


def silence(ask: Ask, port: ResponsePort) -> None:
    """No answer."""


@contextmanager
def door(service: FakeService, tongue: Tongue = TEXT_TONGUE) -> Iterator[Door]:
    opened = Door(service, tongue, 0.005, {"door": "d"})
    opened.start()
    try:
        yield opened
    finally:
        opened.stop()


def text_request(text: str = "hi", **changes: Any) -> Request:
    arrays = {"text_input": np.array([text.encode()], dtype=object), **changes.pop("arrays", {})}
    return Request(arrays, outputs=("text_output",), **changes)


def router_request(*ids: int, **changes: Any) -> Request:
    arrays = {"input_ids": np.array([ids], dtype=np.int32), "request_output_len": np.array([[4]])}
    return Request({**arrays, **changes.pop("arrays", {})}, outputs=("text", "request_uid"), **changes)


def test_a_request_becomes_an_ask_and_the_answer_its_responses() -> None:
    service = FakeService(answer)
    with door(service) as opened:
        request = text_request(arrays={"stream": np.array([True])})
        assert opened.execute([request]) is None
        assert request.wait() == [({"text_output": [b"a"]}, 0), ({"text_output": [b"b"]}, 1)]
    assert service.calls == ["start", "stop"]


def test_requests_of_one_execute_are_answered_each() -> None:
    with door(FakeService(answer)) as opened:
        requests = [text_request(), text_request()]
        opened.execute(requests)
        assert [request.wait() for request in requests] == [[({"text_output": [b"ab"]}, 1)]] * 2


def test_a_request_that_cannot_be_read_is_refused_by_field() -> None:
    with door(FakeService(answer)) as opened:
        request = text_request(parameters_json='{"foo": 1}')
        opened.execute([request])
        ((message, final),) = request.wait()
    assert (final, message.startswith("TR_INVALID_ARGUMENT: foo:")) == (1, True)


def test_what_submit_raises_is_the_clients_error_and_a_mistake_of_ours_stays_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(ask: Ask, port: ResponsePort) -> None:
        raise CapacityError("no room")

    def mistake(ask: Ask, port: ResponsePort) -> None:
        raise ZeroDivisionError("a secret")

    for behave, expected in ((full, "TR_CAPACITY: no room"), (mistake, "TR_ERROR: an internal error")):
        with door(FakeService(behave)) as opened:
            request = text_request(id="same")
            opened.execute([request])
            ((message, _),) = request.wait()
        assert message.startswith(expected)
    assert "a secret" in caplog.text


def test_an_id_in_use_is_refused_until_its_owner_ends() -> None:
    service = FakeService(silence)
    with door(service) as opened:
        opened.execute([text_request(id="me")])
        second = text_request(id="me")
        opened.execute([second])
        second.wait()
        assert second.sender.sent[0][0].error.code == TritonError.ALREADY_EXISTS


def test_a_client_that_goes_is_cancelled_at_the_service() -> None:
    ports: list[ResponsePort] = []
    service = FakeService(lambda ask, port: ports.append(port))
    with door(service) as opened:
        request = text_request("gone")
        opened.execute([request])
        request.sender.cancelled = True
        request_done = threading.Event()
        for _ in range(500):
            if service.cancelled:
                break
            request_done.wait(0.01)
        assert service.cancelled == [("handle", "gone")]
        ports[0].put(Piece(finish=Finish(Reason.CANCELLED)))
        assert request.wait() == [({"text_output": [b""]}, 1)]


def test_the_cancel_bridge_finds_a_request_by_uid() -> None:
    service = FakeService(silence)
    with door(service, ROUTER_TONGUE) as opened:
        opened.execute([router_request(5, arrays={"REQUEST_UID": np.array([[9]], dtype=np.uint64)})])
        opened.cancel_uid(8)
        opened.cancel_uid(9)
        assert service.cancelled == [("handle", (5,))]


def test_stop_ends_the_request_that_has_its_id_and_says_nothing_itself() -> None:
    service = FakeService(silence)
    stop = {"stop": np.array([[True]])}
    with door(service, TOKENS_TONGUE) as opened:
        opened.execute([router_request(5, id="me")])
        stopping = [router_request(1, id=name, arrays=stop) for name in ("me", "nobody", "")]
        opened.execute(stopping)
        assert [request.wait()[0][0] for request in stopping[:2]] == [None, None]
        assert stopping[2].wait()[0][0].startswith("TR_INVALID_ARGUMENT: stop: needs the id")
        assert service.cancelled == [("handle", (5,))]


def test_stopping_the_door_ends_every_open_request_with_an_error() -> None:
    request = text_request()
    with door(FakeService(silence)) as opened:
        opened.execute([request])
    assert request.wait() == [("TR_SHUTDOWN: the server is stopping", 1)]
