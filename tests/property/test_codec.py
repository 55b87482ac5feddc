"""Bytes: every message of every kind comes back equal; damaged bytes are refused or are a message."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from router_backend.core.effects import Close, Emit, Reason, TokenLogprobs, Usage
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import PolicySpec, Request, Sampling
from router_backend.handoff.codec import SCHEMA, Message, pack, unpack
from router_backend.handoff.message import (
    Abort,
    Admit,
    Admitted,
    Beat,
    Finished,
    Go,
    Handoff,
    Joined,
    Nack,
    Observation,
    Report,
    Thresholds,
)

INTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FLOATS = st.floats(allow_nan=False)
IDS = st.lists(INTS, max_size=8).map(tuple)
VALUES = st.one_of(INTS, FLOATS, st.booleans(), TEXTS)

SAMPLINGS = st.builds(
    Sampling, temperature=FLOATS, top_k=INTS, top_p=FLOATS, seed=INTS, logprobs=st.none() | INTS
)
LOGPROBS = st.builds(TokenLogprobs, FLOATS, st.lists(st.tuples(INTS, FLOATS), max_size=3).map(tuple))
POLICIES = st.builds(PolicySpec, name=TEXTS, params=st.lists(st.tuples(TEXTS, VALUES), max_size=4).map(tuple))
REQUESTS = st.builds(
    Request,
    request_id=TEXTS,
    prompt=IDS,
    max_tokens=INTS,
    home=TEXTS,
    epoch=INTS,
    sampling=SAMPLINGS,
    policy=POLICIES,
    stop_ids=st.frozensets(INTS, max_size=4),
)


def named(kind: type, **fields: Any) -> st.SearchStrategy[Any]:
    return st.builds(kind, request_id=TEXTS, epoch=INTS, **fields)


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    named(
        Handoff,
        source=INTS,
        target=INTS,
        seq=INTS,
        base=INTS,
        token_ids=IDS,
        seen=IDS,
        attempt=INTS,
        raw_steps=INTS,
        provisional=INTS,
        request=st.none() | REQUESTS,
        meta=st.dictionaries(TEXTS, VALUES, max_size=3),
    ),
    named(Admitted, source=INTS),
    named(Joined, source=INTS),
    named(Finished, source=INTS, kept=INTS),
    named(Nack, source=INTS, seq=INTS, have=INTS),
    st.builds(Admit, REQUESTS),
    named(Abort),
    st.builds(Beat, TEXTS, INTS, INTS, INTS, INTS, INTS, IDS),
    named(
        Emit,
        home=TEXTS,
        position=INTS,
        token_ids=IDS,
        model=INTS,
        logprobs=st.lists(LOGPROBS, max_size=3).map(tuple),
    ),
    named(
        Close,
        home=TEXTS,
        reason=st.sampled_from(Reason),
        length=INTS,
        message=TEXTS,
        usage=st.builds(Usage, discarded=INTS, handoffs=INTS),
    ),
    st.builds(Report, INTS, INTS, IDS, st.booleans()),
    st.builds(Go, INTS),
    st.builds(
        Observation, INTS, INTS, IDS, INTS, st.lists(st.tuples(INTS, INTS, FLOATS), max_size=3).map(tuple)
    ),
    st.builds(Thresholds, INTS, st.lists(IDS, max_size=3).map(tuple), FLOATS),
)

Cut = tuple[int, int, bytes]
CUT = st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=6))
"""Where, how many bytes to take out, what to put in."""


@given(MESSAGES)
def test_every_message_comes_back_equal_and_of_its_kind(message: Message) -> None:
    back = unpack(pack(message))
    assert back == message and type(back) is type(message)


def damaged(frame: bytes, cuts: list[Cut]) -> bytes:
    for where, count, inserted in cuts:
        start = where % (len(frame) + 1)
        frame = frame[:start] + inserted + frame[start + count :]
    return frame


def is_refused_or_a_message(frames: list[bytes]) -> bool:
    try:
        return isinstance(unpack(frames), Message)
    except RemoteProtocolError:
        return True


@given(message=MESSAGES, cuts=st.lists(CUT, min_size=1, max_size=4))
@settings(max_examples=500)
def test_a_damaged_body_is_refused_or_is_a_message(message: Message, cuts: list[Cut]) -> None:
    head, body = pack(message)
    assert is_refused_or_a_message([head, damaged(body, cuts)])


@given(message=MESSAGES, head=st.binary(max_size=3))
def test_a_damaged_head_is_refused_or_names_another_kind(message: Message, head: bytes) -> None:
    assert is_refused_or_a_message([head, pack(message)[1]])


@given(kind=st.integers(0, 13), body=st.binary(max_size=64))
@example(kind=7, body=b"\xdd\xff\xff\xff\xff")
@example(kind=7, body=b"\xdf\xff\xff\xff\xff")
@example(kind=0, body=b"\x81" * 2000)
@settings(max_examples=300)
def test_noise_is_refused_or_is_a_message(kind: int, body: bytes) -> None:
    assert is_refused_or_a_message([bytes([SCHEMA, kind]), body])


@given(st.lists(st.binary(max_size=4), max_size=4).filter(lambda frames: len(frames) != 2))
def test_any_other_number_of_frames_is_refused(frames: list[bytes]) -> None:
    assert is_refused_or_a_message(frames)
