"""The official `openai` client against our HTTP API over a real Triton."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.server.clients import eventually, generate, metric
from tests.server.test_doors import DEMO, PROMPT
from tests.server.test_real_cancel import held
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

MODEL = "token_router"
CHAT = [{"role": "user", "content": PROMPT}]
ANSWER = DEMO[0]["answer"]
ENDLESS = {"max_tokens": 4000, "extra_body": {"ignore_eos": True, "x_router": {"cutoff": 0.05}}}


@pytest.fixture(scope="module")
def client(openai_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{openai_url}/v1", api_key="none", max_retries=0, timeout=60) as found:
        yield found


def test_a_chat_gives_the_right_answer_with_usage_and_authors(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model=MODEL, messages=CHAT)
    assert found.choices[0].message.content == ANSWER
    assert found.choices[0].finish_reason == "stop"
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (14, 13)
    routing = found.x_router
    assert set(routing["authors"]) == {"small", "large"}
    assert (sum(routing["chars"]), routing["handoffs"]) == (len(ANSWER), 4)
    assert routing["share"]["large"] == routing["authors"].count("large") / 13


def test_the_chunks_of_a_streamed_chat_are_the_answer_and_end_with_usage(client: openai.OpenAI) -> None:
    usage = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model=MODEL, messages=CHAT, stream=True, stream_options=usage)
    )
    told = [chunk for chunk in chunks if chunk.choices]
    assert "".join(chunk.choices[0].delta.content for chunk in told) == ANSWER
    assert [chunk.choices[0].finish_reason for chunk in told if chunk.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage.total_tokens == 27
    authors = [author for chunk in told for author in chunk.x_router["authors"]]
    assert authors == client.chat.completions.create(model=MODEL, messages=CHAT).x_router["authors"]


def test_a_completion_is_the_same_at_both_doors(server: TritonServer, client: openai.OpenAI) -> None:
    sampling = {"max_tokens": 9, "temperature": 0.8, "top_p": 0.9, "seed": 7}
    found = client.completions.create(model=MODEL, prompt=PROMPT, **sampling)
    assert found.choices[0].text == generate(server, MODEL, text_input=PROMPT, **sampling).body["text_output"]
    assert found.choices[0].finish_reason == "length"


def test_a_stop_string_ends_the_answer_and_is_not_in_it(client: openai.OpenAI) -> None:
    for stop in ("53", ["99 99", "53"]):
        found = client.completions.create(model=MODEL, prompt=PROMPT, stop=stop)
        assert (found.choices[0].text, found.choices[0].finish_reason) == ("95 03 90 ", "stop")
        assert found.x_router["stop_text"] == "53"


def test_log_probabilities_are_one_per_token_whole_and_streamed(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "messages": CHAT, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**asked).choices[0].logprobs.content
    chunks = client.chat.completions.create(**asked, stream=True)
    told = [chunk.choices[0].logprobs for chunk in chunks]
    streamed = [token for logprobs in told if logprobs for token in logprobs.content]
    assert [(token.token, token.logprob) for token in streamed] == [(one.token, one.logprob) for one in whole]
    assert [one.token.strip() for one in whole[:-1]] == ANSWER.split()
    assert all(len(one.top_logprobs) == 3 and one.top_logprobs[0].logprob <= 0 for one in whole)
    texts = client.completions.create(model=MODEL, prompt=PROMPT, logprobs=2).choices[0].logprobs
    assert texts.text_offset[:3] == [0, 2, 5]


def test_the_seed_that_was_used_gives_the_same_answer_again(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "prompt": PROMPT, "temperature": 1.5, "max_tokens": 12}
    first = client.completions.create(**asked)
    again = client.completions.create(**asked, seed=first.x_router["seed"])
    assert again.choices[0].text == first.choices[0].text


def test_a_request_chooses_policy_and_cutoff(client: openai.OpenAI) -> None:
    def share(**wish: object) -> float:
        found = client.completions.create(model=MODEL, prompt=PROMPT, extra_body={"x_router": wish})
        return float(found.x_router["share"]["large"])

    assert share(cutoff=2.0) == 0.0
    assert share(cutoff=0.0001) > 0.5
    assert share(policy="fixed", params={"mode": "never", "entry": "large"}) == 1.0


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_client_that_leaves_frees_both_models(
    server: TritonServer, client: openai.OpenAI, is_streaming: bool
) -> None:
    """Streamed: after the first chunk. Not streamed: by a time-out of its own, before any answer."""
    assert eventually(lambda: held(server) == 0)
    if is_streaming:
        chunks = client.completions.create(model=MODEL, prompt=PROMPT, stream=True, **ENDLESS)
        next(iter(chunks))
        assert eventually(lambda: held(server) > 0)
        chunks.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            client.completions.create(model=MODEL, prompt=PROMPT, timeout=0.5, **ENDLESS)
    assert eventually(lambda: held(server) == 0)


def test_a_cancel_ends_its_own_request_only(server: TritonServer, client: openai.OpenAI) -> None:
    stays = client.completions.create(
        model=MODEL, prompt=PROMPT, stream=True, max_tokens=600, extra_body={"ignore_eos": True}
    )
    leaves = client.completions.create(model=MODEL, prompt=PROMPT, stream=True, **ENDLESS)
    next(iter(leaves))
    leaves.close()
    assert sum(len(chunk.x_router["authors"]) for chunk in stays) == 600
    assert eventually(lambda: metric(server, "token_router_live_requests") == 0)


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"n": 2}, openai.BadRequestError, "n"),
        ({"max_tokens": 100_000}, openai.BadRequestError, "max_tokens"),
        ({"messages": []}, openai.BadRequestError, "messages"),
        ({"messages": [{"role": "user"}]}, openai.BadRequestError, "messages[0].content"),
        ({"model": "gpt"}, openai.NotFoundError, "model"),
        (
            {"tools": [{"type": "function", "function": {"name": "add"}}]},
            openai.BadRequestError,
            "tools",
        ),
        ({"extra_body": {"x_router": {"policy": "odd"}}}, openai.BadRequestError, "x_router.policy"),
    ],
)
def test_an_error_is_the_clients_own_exception_and_names_the_field(
    client: openai.OpenAI, fields: dict[str, object], kind: type[openai.APIStatusError], param: str
) -> None:
    for is_streaming in (False, True):
        with pytest.raises(kind) as found:
            client.chat.completions.create(
                **{"model": MODEL, "messages": CHAT, "stream": is_streaming, **fields}
            )
        assert (found.value.param, found.value.type) == (param, "invalid_request_error")


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    (card,) = client.models.list()
    assert (card.id, card.x_router["models"]) == (MODEL, ["small", "large"])
    assert client.models.retrieve(MODEL).id == MODEL


def test_it_is_ready_when_every_model_is(openai_url: str) -> None:
    assert httpx.get(f"{openai_url}/health/ready", timeout=20).json() == {"status": "ready"}
