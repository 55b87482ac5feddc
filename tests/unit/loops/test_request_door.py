"""What clients may ask for: one rule set, and errors that name field, value and cure."""

import math
from typing import Any

import pytest

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.loops.ask_fields import (
    read_messages,
    read_sampling,
    read_stop,
    read_timeout,
    read_tools,
)
from python_backend.loops.base import Ask
from python_backend.loops.request_door import Beats, RequestDoor, Ticket
from router_backend.core.errors import CapacityError, PeerLostError, RequestError, RouterError
from router_backend.core.request import PolicySpec, Request, RequestId, Sampling
from router_backend.handoff.message import Beat
from tests.builders import key
from tests.unit.loops.front_bench import LARGE, SMALL, Letters

BEATS: Beats = (
    Beat("small", 1, 0, vocab_size=60, length_max=40, capacity_tokens=100, eos_ids=(26,)),
    Beat("large", 2, 1, vocab_size=50, length_max=80, capacity_tokens=30, eos_ids=(26, 27)),
)


def admit(beats: Beats = BEATS, front: dict[str, Any] | None = None, **fields: Any) -> Ticket:
    models = [{"name": "small"}, {"name": "large"}]
    policy = {"name": "r_stitch", "params": {"cutoff": 0.1}}
    deployment = Deployment.model_validate({"models": models, "policy": policy, "front": front or {}})
    fields = fields if {"text", "messages", "input_ids"} & fields.keys() else {"text": "abc", **fields}
    agreement = Agreement(60, frozenset({26, 27, 30}))
    door = RequestDoor(deployment, agreement, Letters(), "front", lambda: 7)
    return door.admit(Ask(**fields), key(), beats)


def test_a_bare_prompt_gets_every_default() -> None:
    assert admit() == Ticket(
        request=Request(
            RequestId("r"),
            (1, 2, 3),
            max_tokens=27,
            home="front",
            sampling=Sampling(seed=7),
            policy=PolicySpec("r_stitch", (("cutoff", 0.1),)),
            stop_ids=frozenset({26, 27, 30}),
        ),
        needed=(SMALL, LARGE),
        stop=(),
        echo="",
        timeout_s=600.0,
    )


def test_what_the_client_says_is_kept() -> None:
    ticket = admit(
        max_tokens=5, temperature=0.7, top_k=4, top_p=0.9, seed=3, stop=("x",), ignore_eos=True, timeout_s=2.5
    )
    assert ticket.request.sampling == Sampling(0.7, 4, 0.9, 3)
    assert (ticket.request.max_tokens, ticket.request.stop_ids) == (5, frozenset())
    assert (ticket.stop, ticket.timeout_s) == (("x",), 2.5)


def test_the_three_kinds_of_prompt() -> None:
    chat = ({"role": "user", "content": [{"type": "text", "text": "b"}]},)
    assert admit(text=" ").request.prompt == (0,)
    assert admit(input_ids=(4, 49)).request.prompt == (4, 49)
    assert admit(messages=chat).request.prompt == Letters().encode("user:b")


def test_an_echo_is_the_prompt_as_text() -> None:
    assert [admit(is_echoing=True).echo, admit(input_ids=(1, 2), is_echoing=True).echo] == ["abc", "bc"]


def test_a_policy_by_name_chooses_entry_and_needed_models() -> None:
    never = admit(policy="fixed", policy_params={"entry": "large"})
    always = admit(policy="fixed", policy_params={"mode": "always", "entry": "large", "to": "small"})
    assert (never.entry, never.needed, always.needed) == (LARGE, (LARGE,), (LARGE, SMALL))


def test_parameters_of_the_default_policy_are_completed_not_replaced() -> None:
    spec = admit(policy="r_stitch", policy_params={"unit": "nats"}).request.policy
    assert spec == PolicySpec("r_stitch", (("cutoff", 0.1), ("unit", "nats")))


def test_a_model_that_is_not_needed_sets_no_limit() -> None:
    assert admit(policy="fixed", max_tokens=37).request.max_tokens == 37


def test_the_end_tokens_of_a_model_that_is_down_end_answers_too() -> None:
    assert admit((BEATS[0], None), policy="fixed").request.stop_ids == {26, 27, 30}


def test_a_long_wish_is_cut_to_the_servers_timeout() -> None:
    assert admit(timeout_s=10_000.0).timeout_s == 600.0


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"text": ""}, RequestError, "text_input: '' is an empty prompt"),
        ({"input_ids": ()}, RequestError, r"input_ids: \[\] is an empty prompt"),
        ({"input_ids": (1, 50)}, RequestError, r"input_ids\[1\]: 50 is no token id: use 0..49"),
        ({"input_ids": (-1,)}, RequestError, r"input_ids\[0\]: -1 is no token id"),
        ({"text": "a", "input_ids": (1,)}, RequestError, "give exactly one, got"),
        ({"text": None}, RequestError, "give exactly one, got none"),
        ({"text": "a\ud800"}, RequestError, "text_input: is not Unicode at character 1"),
        ({"max_tokens": 0}, RequestError, "max_tokens: 0 must be at least 1"),
        ({"max_tokens": 28}, CapacityError, "28 after a prompt of 3 tokens exceed 30 tokens, the KV "),
        ({"max_tokens": 28}, CapacityError, "model 'large': set max_tokens to at most 27"),
        ({"policy": "fixed", "max_tokens": 38}, RequestError, "40 tokens, the length_max of model 'small'"),
        ({"text": "a" * 30}, CapacityError, "prompt: 30 tokens leave no room .*: send at most 29"),
        ({"policy": "nope"}, RequestError, "policy: 'nope' is unknown; known are "),
        ({"policy": "fixed", "policy_params": {"x": 1}}, RequestError, "policy: fixed.x: unknown parameter"),
        ({"policy_params": {"cutoff": [1]}}, RequestError, r"r_stitch.cutoff: \[1\] must be a number"),
        ({"policy_params": {"cutoff": 10**400}}, RequestError, "cutoff: a whole number may be at most"),
        ({"messages": ()}, RequestError, r"messages: \[\] is an empty chat"),
    ],
)
def test_what_cannot_be_served_is_named(
    fields: dict[str, Any], kind: type[RouterError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        admit(**fields)


def test_a_prompt_over_the_byte_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(RequestError, match="text_input: 6 bytes, prompt_bytes_max is 5"):
        admit(front={"prompt_bytes_max": 5}, text="ééé")


def test_a_deployment_can_restrict_the_policies() -> None:
    assert admit(front={"policies": ()}).request.policy.name == "r_stitch"
    with pytest.raises(RequestError, match="policy: 'fixed' is not allowed here"):
        admit(front={"policies": ("r_stitch",)}, policy="fixed")


def test_penalties_and_bans_are_kept() -> None:
    sampling = admit(
        max_tokens=5,
        min_p=0.1,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        min_tokens=5,
        logit_bias=((9, 1.0), (2, -100.0)),
        bad_words=("ab", "c"),
        bad_ids=((4, 5),),
    ).request.sampling
    bad = ((1, 2), (0, 1, 2), (3,), (0, 3), (4, 5))
    bias = ((2, -100.0), (9, 1.0))
    assert sampling == Sampling(0.0, 0, 1.0, 7, 0.1, 1.5, 0.5, -0.5, bias, bad, min_tokens=5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": 4, "min_tokens": 5}, "min_tokens: 5 must be from 0 (off) to max_tokens, which is 4"),
        ({"min_tokens": 28}, "min_tokens: 28 must be from 0 (off) to max_tokens, which is 27"),
        ({"logit_bias": ((50, 1.0),)}, "logit_bias: 50 is no token id: use 0..49"),
        ({"bad_ids": ((50,),)}, "bad_words_list: 50 is no token id: use 0..49"),
        ({"bad_words": ("",)}, 'bad_words: "" is in every text: leave it out'),
    ],
)
def test_what_no_answer_could_keep_to_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        admit(**fields)
    assert message in str(caught.value)


def test_a_model_that_is_down_is_named() -> None:
    with pytest.raises(PeerLostError, match="model 'large' is not running"):
        admit((BEATS[0], None))


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({"temperature": 1e-12}, Sampling(1e-12, seed=7)),
        ({"top_k": -1}, Sampling(top_k=0, seed=7)),
        ({"top_k": 0}, Sampling(top_k=0, seed=7)),
        ({"top_p": 1.0, "seed": 2**63 - 1}, Sampling(seed=2**63 - 1)),
        ({"temperature": 2.0, "seed": 0}, Sampling(2.0, seed=0)),
    ],
)
def test_edge_values_that_are_allowed(fields: dict[str, Any], sampling: Sampling) -> None:
    assert read_sampling(Ask(text="a", **fields), lambda: 7) == sampling


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": math.nan}, "temperature: nan"),
        ({"temperature": math.inf}, "temperature: inf"),
        ({"temperature": 2.1}, "temperature: 2.1 must be a number from 0 to 2"),
        ({"temperature": -0.1}, "temperature: -0.1"),
        ({"top_p": 0.0}, "top_p: 0.0 must be above 0"),
        ({"top_p": math.nan}, "top_p: nan"),
        ({"top_p": 1.01}, "top_p: 1.01"),
        ({"top_k": -2}, "top_k: -2 must be at least 1"),
        ({"top_k": 2**31}, "top_k: 2147483648 must be at most 2147483647"),
        ({"seed": -1}, "seed: -1 must be from 0"),
        ({"seed": 2**63}, "seed: 9223372036854775808"),
    ],
)
def test_edge_values_that_are_not(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_sampling(Ask(text="a", **fields), lambda: 7)


def test_stop_strings_are_bounded_and_not_empty() -> None:
    assert read_stop(("x",) * 32) == ("x",) * 32
    for stop, message in ((("a", ""), '""'), (("x",) * 33, "33 strings"), (("x" * 5000,), "5000 characters")):
        with pytest.raises(RequestError, match=f"stop: .*{message}"):
            read_stop(stop)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, math.nan, math.inf])
def test_a_timeout_must_be_a_time(timeout_s: float) -> None:
    with pytest.raises(RequestError, match="timeout: "):
        read_timeout(timeout_s, 5.0)


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("hello", r"messages\[0\].role"),
        ({"content": "a"}, r"messages\[0\].role"),
        ({"role": "user"}, r"messages\[0\].content: must be text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "only text parts"),
        ({"role": "user", "content": "a", "refusal": ""}, r"messages\[0\].refusal: not supported"),
        ({"role": "user", "content": "a", "tool_calls": "x"}, r"messages\[0\].tool_calls: must be a list"),
    ],
)
def test_messages_are_texts_with_a_role(message: Any, fault: str) -> None:
    with pytest.raises(RequestError, match=fault):
        read_messages((message,))


def test_a_chat_may_call_functions_and_be_shown_them() -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}
    answered = {"role": "tool", "content": "3", "tool_call_id": "c"}
    assert read_messages((called, answered)) == [{**called, "content": ""}, answered]
    tool = {"type": "function", "function": {"name": "add"}}
    assert (read_tools((tool,)), read_tools(None)) == ([tool], [])


@pytest.mark.parametrize(
    ("tool", "fault"),
    [
        ({}, r"tools\[0\]: must be"),
        ({"type": "function", "function": "add"}, r"tools\[0\]: must be"),
        ({"type": "function", "function": {"name": 3}}, r"tools\[0\].function.name"),
    ],
)
def test_a_tool_is_a_function_with_a_name(tool: dict[str, Any], fault: str) -> None:
    with pytest.raises(RequestError, match=fault):
        read_tools((tool,))


def test_tools_without_a_chat_are_refused() -> None:
    with pytest.raises(RequestError, match="tools: only a chat has tools"):
        admit(tools=({"type": "function", "function": {"name": "add"}},))


def test_a_request_may_choose_a_cutoff_within_the_deployments_range() -> None:
    bounds = {"cutoff_range": (0.1, 0.5)}
    assert admit(front=bounds, policy_params={"cutoff": 0.5}).request.policy.params == (("cutoff", 0.5),)
    for cutoff in (0.6, 0.0, "0.2", float("nan")):
        with pytest.raises(RequestError, match=r"policy: cutoff: .* must be from 0.1 to 0.5 here"):
            admit(front=bounds, policy_params={"cutoff": cutoff})
