"""FINAL exactly once and no secrets, whatever the service behind a door does."""

from __future__ import annotations

import pytest

from tests.server.clients import eventually, generate, grpc_stream, metric, post, sse, stream, text_of
from tests.server.test_doors import PROMPT
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

FAKES = ("fake_text", "fake_ensemble")


def in_flight(server: TritonServer, model: str) -> float:
    """Requests that Triton has taken and not finished."""
    return metric(server, "token_router_open_streams", door=model)


@pytest.mark.parametrize("door", FAKES)
@pytest.mark.parametrize("behaviour", ["words", "twice"])
def test_a_stream_ends_exactly_once_even_when_the_service_goes_on(
    server: TritonServer, door: str, behaviour: str
) -> None:
    with grpc_stream(server) as opened:
        for _ in range(3):
            opened.ask(door, text_input=PROMPT, max_tokens=3, stream=True, routing_algorithm=behaviour)
            texts = [found["text_output"].flat[0].decode() for found in opened.read_all()]
            assert texts == ["0 ", "1 ", "2 ", ""]


def test_a_broken_answer_ends_with_an_error_without_our_secrets(server: TritonServer) -> None:
    for behaviour in ("broken_submit", "broken_piece"):
        events = stream(server, "fake_text", text_input=PROMPT, routing_algorithm=behaviour)
        error = events[-1]["error"]
        assert error.startswith("TR_ERROR")
        assert not [word for word in ("secret", "Traceback", ".py", "ValueError") if word in error]


def test_an_error_before_any_response_is_an_error_at_both_doors(server: TritonServer) -> None:
    for door in FAKES:
        answer = generate(server, door, text_input=PROMPT, max_tokens=2, routing_algorithm="error_first")
        assert (answer.status, "TR_PEER_LOST: large is gone" in answer.error) == (400, True)


def test_an_error_in_mid_stream_is_an_error_event_at_the_text_door(server: TritonServer) -> None:
    events = stream(server, "fake_text", text_input=PROMPT, routing_algorithm="error_late")
    assert [event.get("text_output", event.get("error")) for event in events] == [
        "0 ",
        "1 ",
        "TR_PEER_LOST: large is gone",
    ]


def test_an_error_in_mid_stream_is_data_in_the_ensemble_and_loses_no_text(server: TritonServer) -> None:
    """As an error it would drop text that is still in postprocessing and leave the request open for ever."""
    for _ in range(10):
        events = stream(
            server, "fake_ensemble", text_input=PROMPT, max_tokens=2, routing_algorithm="error_late"
        )
        assert text_of(events) == "0 1 "
        assert (events[-1]["finish_reason"], events[-1]["error_message"]) == (
            "error",
            "TR_PEER_LOST: large is gone",
        )
    assert eventually(lambda: in_flight(server, "fake_router") == 0)


def test_text_keeps_its_order_through_postprocessing(server: TritonServer) -> None:
    expected = "".join(f"{number} " for number in range(300))
    for _ in range(3):
        events = stream(server, "fake_ensemble", text_input=PROMPT, max_tokens=300, routing_algorithm="words")
        assert text_of(events) == expected


def test_without_stream_many_pieces_are_one_response(server: TritonServer) -> None:
    for door in FAKES:
        flags = {"return_num_output_tokens": True, "return_finish_reason": True}
        body = generate(
            server, door, text_input=PROMPT, max_tokens=50, routing_algorithm="words", **flags
        ).body
        assert body["text_output"] == "".join(f"{number} " for number in range(50))
        assert (body["num_output_tokens"], body["finish_reason"]) == (50, "length")


def cancelled(server: TritonServer, door: str) -> float:
    return metric(server, "token_router_fake_cancels_total", door=door)


def test_closing_an_http_stream_cancels_its_request(server: TritonServer) -> None:
    before = cancelled(server, "fake_text")
    with sse(server, "fake_text", text_input=PROMPT, routing_algorithm="one_then_silent") as events:
        assert next(events)["text_output"] == "0 "
    assert eventually(lambda: cancelled(server, "fake_text") == before + 1)


def test_cancelling_a_grpc_stream_cancels_its_request_before_anything_was_sent(server: TritonServer) -> None:
    before = cancelled(server, "fake_text")
    submits = metric(server, "token_router_fake_submits_total", door="fake_text")
    with grpc_stream(server) as opened:
        opened.ask("fake_text", text_input=PROMPT, stream=True, routing_algorithm="silent")
        assert eventually(
            lambda: metric(server, "token_router_fake_submits_total", door="fake_text") > submits
        )
        opened.cancel()
    assert eventually(lambda: cancelled(server, "fake_text") == before + 1)


@pytest.mark.parametrize("behaviour", ["silent", "one_then_silent"])
def test_a_cancelled_ensemble_reaches_the_router_though_no_token_flows(
    server: TritonServer, behaviour: str
) -> None:
    """Keepalive gives postprocessing a turn, postprocessing tells the router: the cancel bridge."""
    before = cancelled(server, "fake_router")
    with grpc_stream(server) as opened:
        opened.ask("fake_ensemble", text_input=PROMPT, max_tokens=2, stream=True, routing_algorithm=behaviour)
        opened.read()
        opened.cancel()
    assert eventually(lambda: cancelled(server, "fake_router") == before + 1)
    assert eventually(lambda: in_flight(server, "fake_router") == 0)


def test_closing_an_http_stream_of_the_ensemble_cancels_its_request(server: TritonServer) -> None:
    before = cancelled(server, "fake_router")
    body = {"text_input": PROMPT, "max_tokens": 2, "routing_algorithm": "one_then_silent"}
    with sse(server, "fake_ensemble", **body) as events:
        next(events)
    assert eventually(lambda: cancelled(server, "fake_router") == before + 1)


def test_stop_with_the_id_of_a_request_ends_it(server: TritonServer) -> None:
    with grpc_stream(server) as opened:
        body = {"text_input": PROMPT, "max_tokens": 2, "routing_algorithm": "one_then_silent"}
        opened.ask("fake_ensemble", request_id="to-end", stream=True, **body)
        opened.read()
        stop = {"input_ids": [1], "request_output_len": 1, "stop": True}
        answer = post(server, "/v2/models/fake_router/generate_stream", {"id": "to-end", **stop})
        assert answer.status == 200
        last = opened.read_all()[-1]
    assert last["finish_reason"].flat[0] == b"cancelled"


def test_stop_without_an_id_is_refused(server: TritonServer) -> None:
    answer = generate(server, "fake_router", input_ids=[1], request_output_len=1, stop=True)
    assert (answer.status, "TR_INVALID_ARGUMENT: stop" in answer.error) == (400, True)
