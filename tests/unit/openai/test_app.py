"""The HTTP application over a scripted door: shapes, errors, keys, bounds, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from python_backend.openai.app import BODY_BYTES_MAX, ServerSettings, create_app
from tests.unit.client.scripted_door import ANSWER, LIKELY, ScriptedDoor, opened, refusal, reply

CHAT = {"model": "token_router", "messages": [{"role": "user", "content": "p"}]}
TEXT = {"model": "token_router", "prompt": "p"}
ROUTING = {
    "share": {"small": 0.5, "large": 0.5},
    "handoffs": 2,
    "discarded_tokens": 1,
    "stop_text": "x",
    "seed": 11,
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


@asynccontextmanager
async def entered(door: ScriptedDoor, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of the application, in this process."""
    with opened(door) as address:
        app = create_app(ServerSettings(triton=address, **settings))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                yield client


def asked(
    method: str, path: str, body: Any = None, door: ScriptedDoor | None = None, **settings: Any
) -> httpx.Response:
    async def ask() -> httpx.Response:
        headers = settings.pop("headers", {})
        async with entered(door or ScriptedDoor(), **settings) as client:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return await client.request(
                method, path, content=content, headers={"Content-Type": "application/json", **headers}
            )

    return asyncio.run(ask())


def chat(door: ScriptedDoor | None = None, **fields: Any) -> httpx.Response:
    return asked("POST", "/v1/chat/completions", {**CHAT, **fields}, door)


def complete(door: ScriptedDoor | None = None, **fields: Any) -> httpx.Response:
    return asked("POST", "/v1/completions", {**TEXT, **fields}, door)


def events(response: httpx.Response) -> Iterator[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return (json.loads(line) for line in lines[:-1])


def test_a_chat_is_answered_in_openais_shape_with_the_author_of_every_token() -> None:
    told = chat().json()
    assert told.pop("id").startswith("chatcmpl-")
    assert told.pop("created") > 0
    message = {"role": "assistant", "content": "abcd", "refusal": None}
    assert told == {
        "object": "chat.completion",
        "model": "token_router",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE,
        "x_router": {"authors": ["small", "large", "large", "small"], "chars": [1, 1, 2, 0], **ROUTING},
    }


def test_a_completion_may_echo_its_prompt() -> None:
    (choice,) = complete(echo=True).json()["choices"]
    assert choice == {"index": 0, "text": "pabcd", "logprobs": None, "finish_reason": "stop"}
    texts = [event["choices"][0]["text"] for event in events(complete(echo=True, stream=True))]
    assert texts == ["pab", "", "cd"]


def test_a_streamed_chat_begins_with_the_role_and_ends_with_reason_and_usage() -> None:
    told = [*events(chat(stream=True, stream_options={"include_usage": True}))]
    assert len({event["id"] for event in told}) == 1
    assert [event["choices"][0]["delta"] for event in told[:3]] == [
        {"role": "assistant", "content": "ab"},
        {"content": ""},
        {"content": "cd"},
    ]
    assert [event["choices"][0]["finish_reason"] for event in told[:3]] == [None, None, "stop"]
    assert told[2]["x_router"] == {"authors": ["small"], "chars": [0], **ROUTING}
    assert [event["usage"] for event in told] == [None, None, None, USAGE]
    assert told[3]["choices"] == []


def test_without_the_wish_no_chunk_tells_usage() -> None:
    assert all("usage" not in event for event in events(chat(stream=True)))


def test_log_probabilities_have_the_shape_of_each_api() -> None:
    door = ScriptedDoor(LIKELY)
    (choice,) = chat(door, logprobs=True, top_logprobs=1).json()["choices"]
    assert door.asked()["logprobs"] == b"\1\0\0\0"
    x = {"token": "x", "logprob": -0.5, "bytes": [120]}
    b = {"token": "b", "logprob": -9999.0, "bytes": [98]}
    assert choice["logprobs"] == {
        "content": [
            {"token": "a", "logprob": -2.0, "bytes": [97], "top_logprobs": [x]},
            {**b, "top_logprobs": [b]},
        ],
        "refusal": None,
    }
    (event,) = events(complete(door, logprobs=0, stream=True))
    assert event["choices"][0]["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [-2.0, -9999.0],
        "top_logprobs": [{"x": -0.5}, {"b": -9999.0}],
        "text_offset": [0, 1],
    }


def test_what_is_asked_reaches_the_door_under_its_names() -> None:
    door = ScriptedDoor()
    wish = {"cutoff": 7.0, "params": {"unit": "nats"}, "policy": "r_stitch"}
    chat(door, max_completion_tokens=5, stop="x", logit_bias={"3": 2}, x_router=wish, user="u", top_k=4)
    found = door.asked()
    assert found["max_tokens"] == b"\5\0\0\0"
    assert found["stop"][4:] == b"x"
    assert found["routing_algorithm"][4:] == b"r_stitch"
    assert json.loads(found["routing_config"][4:]) == {"unit": "nats", "cutoff": 1.0}


def test_tools_go_to_the_template_unless_none_may_be_called() -> None:
    door = ScriptedDoor()
    tool = {"type": "function", "function": {"name": "add"}}
    chat(door, tools=[tool], tool_choice="auto")
    assert json.loads(door.asked()["tools"][4:]) == [tool]
    chat(door, tools=[tool], tool_choice="none")
    assert "tools" not in door.asked()


def test_a_call_of_the_past_is_shown_to_the_template_as_an_object() -> None:
    door = ScriptedDoor()
    calls = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]
    odd = [{"id": "d", "function": {"name": "add", "arguments": "{"}}, "odd"]
    messages = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "assistant", "content": "t", "tool_calls": odd},
    ]
    chat(door, messages=messages)
    first, second = json.loads(door.asked()["messages"][4:])
    assert first["tool_calls"][0]["function"]["arguments"] == {"a": 1}
    assert ("content" in first, second["tool_calls"]) == (False, odd)


def fault(response: httpx.Response) -> tuple[int, str, str | None, str]:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return response.status_code, error["type"], error["param"], error["code"]


BAD = "invalid_request_error"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"n": 2}, "n", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"seed": -1}, "seed", "invalid_value"),
        ({"stop": [1]}, "stop", "invalid_value"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "invalid_value"),
        ({"no_such": 1}, "no_such", "unknown_parameter"),
        ({"x_router": {"cutof": 1}}, "x_router.cutof", "unknown_parameter"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"response_format": {"type": "json_object"}}, "response_format", "invalid_value"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ],
)
def test_a_field_that_cannot_be_served_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    assert fault(chat(**fields)) == (400, BAD, param, code)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "s"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": 1, "echo": True}, "echo"),
    ],
)
def test_a_completion_that_cannot_be_served_names_its_field(fields: dict[str, Any], param: str) -> None:
    assert fault(complete(**fields)) == (400, BAD, param, "invalid_value")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TR_INVALID_ARGUMENT: text_input: '' is empty", (400, BAD, "prompt", "TR_INVALID_ARGUMENT")),
        ("TR_INVALID_ARGUMENT: policy: odd", (400, BAD, "x_router.policy", "TR_INVALID_ARGUMENT")),
        ("TR_QUEUE_FULL: many", (429, "rate_limit_error", None, "TR_QUEUE_FULL")),
        ("TR_PEER_LOST: large", (503, "server_error", None, "TR_PEER_LOST")),
        ("TR_DEADLINE: late", (504, "server_error", None, "TR_DEADLINE")),
        ("TR_RUNNER: broken", (500, "server_error", None, "TR_RUNNER")),
    ],
)
def test_what_the_door_refuses_has_the_status_that_clients_act_upon(text: str, expected: Any) -> None:
    for is_streaming in (False, True):
        assert fault(chat(ScriptedDoor((refusal(text),)), stream=is_streaming)) == expected


def test_an_error_within_a_stream_is_its_last_event() -> None:
    told = [*events(chat(ScriptedDoor((ANSWER[0], refusal("TR_RUNNER: broken"))), stream=True))]
    assert told[1]["error"]["code"] == "TR_RUNNER"
    given_up = reply(is_last=True, finish_reason="cancelled")
    told = [*events(chat(ScriptedDoor((ANSWER[0], given_up)), stream=True))]
    assert told[1]["error"]["code"] == "TR_CANCELLED"
    assert fault(chat(ScriptedDoor((given_up,))))[0] == 503


def test_an_unknown_model_a_wrong_path_and_a_body_that_is_none_have_the_shape_too() -> None:
    assert fault(chat(model="gpt\ud800")) == (404, BAD, "model", "model_not_found")
    assert fault(asked("GET", "/v1/models/other")) == (404, BAD, "model", "model_not_found")
    assert fault(asked("GET", "/v1/nothing")) == (404, BAD, None, "http_404")
    assert fault(asked("GET", "/v1/completions")) == (405, BAD, None, "http_405")
    assert fault(asked("POST", "/v1/completions", b"[")) == (400, BAD, None, "invalid_json")
    large = b" " * (BODY_BYTES_MAX + 1)
    assert fault(asked("POST", "/v1/completions", large)) == (413, BAD, None, "http_413")


def test_the_served_model_says_what_it_is_made_of() -> None:
    made_of = {"models": ["small", "large"], "policy": "r_stitch", "cutoff": 0.2, "cutoff_range": [0.0, 1.0]}
    (card,) = asked("GET", "/v1/models", name="mine").json()["data"]
    assert (card["id"], card["x_router"]) == ("mine", made_of)
    assert asked("GET", "/v1/models/mine", name="mine").json() == card | {
        "created": pytest.approx(card["created"], abs=60)
    }


def test_a_key_is_asked_for_where_keys_are_set() -> None:
    keys = ("first", "second")
    for given in (None, b"Bearer third", b"Bearer \xc3\xa9"):
        headers = {"Authorization": given} if given else {}
        refused = asked("GET", "/v1/models", api_keys=keys, headers=headers)
        assert fault(refused) == (401, "authentication_error", None, "invalid_api_key")
    let_in = asked("GET", "/v1/models", api_keys=keys, headers={"Authorization": "Bearer second"})
    assert let_in.status_code == 200
    assert asked("GET", "/health", api_keys=keys).status_code == 200


def test_health_is_this_process_and_readiness_every_model() -> None:
    assert asked("GET", "/health").json() == {"status": "ok"}
    assert asked("GET", "/health/ready").json() == {"status": "ready"}
    assert fault(asked("GET", "/health/ready", door=ScriptedDoor(loaded=("token_router",))))[0] == 503


def test_a_server_that_is_gone_is_unavailable() -> None:
    async def ask() -> httpx.Response:
        app = create_app(ServerSettings(triton="127.0.0.1:1"))
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.post("/v1/completions", json=TEXT)

    found = asyncio.run(ask())
    assert (fault(found), found.headers["retry-after"]) == (
        (503, "server_error", None, "TR_UNREACHABLE"),
        "1",
    )


def test_the_page_is_served_and_brings_nothing_from_elsewhere() -> None:
    page = asked("GET", "/").text
    assert page.lower().startswith("<!doctype html>")
    assert not any(mark in page for mark in ("http://", "https://", "src=", "@import", "url("))


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_request_beyond_the_bound_is_refused_and_the_place_is_free_again(is_streaming: bool) -> None:
    """One client holds the only place by an answer that does not end, then leaves."""
    door = ScriptedDoor(ANSWER[:1] if is_streaming else (), is_endless=True)

    async def crowd() -> None:
        async with entered(door, open_max=1) as client:
            holder = asyncio.create_task(
                client.post("/v1/completions", json={**TEXT, "stream": is_streaming})
            )
            while not door.requests:
                await asyncio.sleep(0)
            full = await client.post("/v1/completions", json=TEXT)
            assert fault(full) == (429, "rate_limit_error", None, "TR_QUEUE_FULL")
            holder.cancel()
            await asyncio.gather(holder, return_exceptions=True)
            await asyncio.to_thread(door.cancelled.wait, 20)
            door.answer, door.is_endless = ANSWER, False
            assert (await client.post("/v1/completions", json=TEXT)).status_code == 200

    asyncio.run(crowd())
    assert door.cancelled.is_set()
