"""Both clients against a scripted door: whole answers, streams, cancellation, and every way to fail."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from python_backend.client import (
    Answer,
    AsyncTokenRouterClient,
    Chunk,
    ClientError,
    Description,
    Ending,
    Likely,
    Options,
    RequestRefused,
    Settings,
    TimedOut,
    TokenReport,
    TokenRouterClient,
    Unavailable,
)
from tests.unit.client.scripted_door import ANSWER, LIKELY, ScriptedDoor, opened, refusal, reply

END = Ending("stop", "x", handoffs=2, discarded_tokens=1, seed=11)
WHOLE = Answer("abcd", (0, 1, 1, 0), (1, 1, 2, 0), 3, END)
CHUNKS = [Chunk("ab", (0, 1), (1, 1), 3), Chunk("", (1,), (2,)), Chunk("cd", (0,), (0,), 0, END)]
NOWHERE = "127.0.0.1:1"


def in_both_ways(address: str, prompt: Any = "p", options: Options = Options()) -> list[Any]:  # noqa: B008
    """What the plain client's answer is, and the other one's."""

    async def wait() -> Any:
        async with AsyncTokenRouterClient(address) as client:
            return await client.generate(prompt, options)

    with TokenRouterClient(address) as client:
        return [client.generate(prompt, options), asyncio.run(wait())]


def test_a_whole_answer_says_who_wrote_what() -> None:
    with opened(ScriptedDoor()) as address:
        assert in_both_ways(address) == [WHOLE, WHOLE]
    assert WHOLE.parts() == [(0, "a"), (1, "b"), (1, "cd"), (0, "")]
    assert (WHOLE.output_tokens, WHOLE.share(1)) == (4, 0.5)


def test_a_stream_gives_the_same_in_chunks() -> None:
    async def chunks(address: str) -> list[Chunk]:
        async with AsyncTokenRouterClient(address) as client:
            return [chunk async for chunk in client.stream("p")]

    with opened(ScriptedDoor()) as address:
        with TokenRouterClient(address) as client:
            assert [*client.stream("p")] == CHUNKS
        assert asyncio.run(chunks(address)) == CHUNKS


def test_log_probabilities_come_with_the_likeliest_tokens() -> None:
    first = TokenReport(Likely("a", b"a", -2.0), (Likely("x", b"x", -0.5),))
    last = Likely("b", b"b", float("-inf"))
    with opened(ScriptedDoor(LIKELY)) as address:
        for answer in in_both_ways(address, options=Options(logprobs=1)):
            assert answer.logprobs == (first, TokenReport(last, (last,)))


def test_leaving_a_stream_early_cancels_its_request() -> None:
    door = ScriptedDoor(ANSWER[:1], is_endless=True)
    with opened(door) as address, TokenRouterClient(address) as client:
        with client.stream("p") as chunks:
            assert next(chunks).text == "ab"
        assert door.cancelled.wait(20)
        assert [*chunks] == []


def test_leaving_an_asynchronous_stream_early_cancels_its_request() -> None:
    door = ScriptedDoor(ANSWER[:1], is_endless=True)

    async def leave(address: str) -> None:
        async with AsyncTokenRouterClient(address) as client:
            async with client.stream("p") as chunks:
                assert (await anext(chunks)).text == "ab"
            await asyncio.to_thread(door.cancelled.wait, 20)

    with opened(door) as address:
        asyncio.run(leave(address))
    assert door.cancelled.is_set()


def test_cancelling_the_task_cancels_the_request() -> None:
    door = ScriptedDoor((), is_endless=True)

    async def give_up(address: str) -> None:
        async with AsyncTokenRouterClient(address) as client:
            task = asyncio.create_task(client.generate("p"))
            while not door.requests:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.to_thread(door.cancelled.wait, 20)

    with opened(door) as address:
        asyncio.run(give_up(address))
    assert door.cancelled.is_set()


def failures(address: str, options: Options = Options()) -> list[ClientError]:  # noqa: B008
    async def fail() -> ClientError:
        async with AsyncTokenRouterClient(address) as client:
            with pytest.raises(ClientError) as found:
                await client.generate("p", options)
            return found.value

    with TokenRouterClient(address) as client, pytest.raises(ClientError) as found:
        client.generate("p", options)
    return [found.value, asyncio.run(fail())]


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("TR_INVALID_ARGUMENT: seed: -1 must be from 0", RequestRefused, "TR_INVALID_ARGUMENT"),
        ("TR_QUEUE_FULL: 3 wait", Unavailable, "TR_QUEUE_FULL"),
        ("TR_DEADLINE: too late", TimedOut, "TR_DEADLINE"),
        ("TR_RUNNER: out of memory", ClientError, "TR_RUNNER"),
        ("Request for unknown model: 'token_router' is not found", Unavailable, "TR_UNREACHABLE"),
        ("something else", ClientError, "TR_ERROR"),
    ],
)
def test_an_error_of_the_server_keeps_its_code(text: str, kind: type[ClientError], code: str) -> None:
    with opened(ScriptedDoor((refusal(text),))) as address:
        for error in failures(address):
            assert (type(error), error.code) == (kind, code)


def test_a_refusal_names_the_field() -> None:
    assert RequestRefused("TR_INVALID_ARGUMENT", "stop: too many").field == "stop"
    assert RequestRefused("TR_INVALID_ARGUMENT", "no such thing").field == ""


def test_a_stream_that_ends_without_a_last_chunk_is_an_error() -> None:
    with opened(ScriptedDoor(ANSWER[:1])) as address:
        assert [error.code for error in failures(address)] == ["TR_UNREACHABLE"] * 2


def test_an_error_told_as_data_is_an_error() -> None:
    with opened(ScriptedDoor((reply(is_last=True, finish_reason="error"),))) as address:
        assert [error.code for error in failures(address)] == ["TR_ERROR"] * 2


def test_a_server_that_is_not_there_is_said() -> None:
    assert [type(error) for error in failures(NOWHERE)] == [Unavailable] * 2


def test_the_connections_own_limit_lies_behind_the_servers() -> None:
    assert Settings().limit_s(Options(timeout_s=2.0)) == 7.0
    assert Settings(timeout_s=None).limit_s(Settings(timeout_s=None).timed(Options())) is None
    assert Settings(timeout_s=9.0).timed(Options()).timeout_s == 9.0


def test_a_value_that_fits_no_tensor_is_refused_here() -> None:
    for options in (Options(max_tokens=2**40), Options(seed=-1), Options(stop=("\ud800",))):
        with pytest.raises(RequestRefused), TokenRouterClient(NOWHERE) as client:
            client.generate("p", options)


def test_everything_that_was_asked_for_is_sent_and_nothing_else() -> None:
    door = ScriptedDoor()
    options = Options(max_tokens=7, stop=("a", "b"), policy_params={"cutoff": 0.5}, logit_bias={3: 1.0})
    with opened(door) as address, TokenRouterClient(address) as client:
        client.generate([{"role": "user", "content": "p"}], options)
    asked = door.asked()
    assert asked.pop("max_tokens") == b"\7\0\0\0"
    assert asked.pop("stop") == b"\1\0\0\0a\1\0\0\0b"
    assert asked.pop("routing_config")[4:] == b'{"cutoff": 0.5}'
    assert asked.pop("logit_bias")[4:] == b'{"3": 1.0}'
    assert asked.pop("messages")[4:] == b'[{"role": "user", "content": "p"}]'
    assert asked.pop("stream") == b"\0"
    assert set(asked) == {"return_finish_reason", "return_num_input_tokens", "return_routing", "return_seed"}
    assert door.requests[0].parameters["timeout"].int64_param == 600_000_000


def looks(address: str) -> list[Any]:
    async def look() -> Any:
        async with AsyncTokenRouterClient(address) as client:
            return await client.is_ready(), await client.describe()

    with TokenRouterClient(address) as client:
        return [(client.is_ready(), client.describe()), asyncio.run(look())]


@pytest.mark.parametrize(
    ("loaded", "is_ready"), [(("token_router", "small", "large"), True), (("token_router", "small"), False)]
)
def test_ready_means_the_door_and_every_model_behind_it(loaded: tuple[str, ...], is_ready: bool) -> None:
    told = Description(("small", "large"), "r_stitch", 0.2, (0.0, 1.0), (("small",), ("large",)))
    with opened(ScriptedDoor(loaded=loaded)) as address:
        assert looks(address) == [(is_ready, told)] * 2


@pytest.mark.parametrize(
    ("loaded", "is_ready"), [(("large_2",), True), (("large",), True), (("large_3",), False), ((), False)]
)
def test_one_replica_of_a_model_is_enough(loaded: tuple[str, ...], is_ready: bool) -> None:
    door = ScriptedDoor(loaded=("token_router", "small", *loaded), replicas="small;large,large_2")
    with opened(door) as address:
        assert [found for found, _ in looks(address)] == [is_ready] * 2


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND])
def test_a_model_that_is_absent_is_not_ready(status: grpc.StatusCode) -> None:
    door = ScriptedDoor(loaded=("token_router", "small"), readiness=(status, "unknown model: 'large'"))
    with opened(door) as address:
        assert [found for found, _ in looks(address)] == [False] * 2


def test_a_server_that_refuses_to_say_who_is_ready_is_an_error() -> None:
    refused = (grpc.StatusCode.PERMISSION_DENIED, "the key is wrong")
    with opened(ScriptedDoor(loaded=("token_router",), readiness=refused)) as address:
        with TokenRouterClient(address) as client, pytest.raises(ClientError, match="the key is wrong"):
            client.is_ready()
        with pytest.raises(ClientError, match="the key is wrong"):
            asyncio.run(ready(address))


async def ready(address: str) -> bool:
    async with AsyncTokenRouterClient(address) as client:
        return await client.is_ready()


def test_nobody_is_ready_where_nobody_is() -> None:
    with TokenRouterClient(NOWHERE) as client:
        assert not client.is_ready()
        with pytest.raises(Unavailable):
            client.describe()
