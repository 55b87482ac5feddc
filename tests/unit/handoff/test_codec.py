"""Bytes: every message comes back equal, and nothing else comes in."""

from __future__ import annotations

import pytest

from router_backend.core.effects import Close, Emit, Reason, Usage
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex, RequestId
from router_backend.handoff.codec import SCHEMA, pack, unpack
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
    Report,
)
from tests.builders import request, stitch

R, M = RequestId("r"), ModelIndex(1)
MESSAGES = [
    Handoff(R, 1, ModelIndex(0), M, 4, 2, (5, 6), (4, 4), 1, 9, request(policy=stitch(0.5)), {"max_stay": 3}),
    Admitted(R, 0, M),
    Finished(R, 0, M),
    Nack(R, 0, M, 3, 17),
    Admit(request(policy=stitch(0.25))),
    Abort(R, 2),
    Beat("large", 12345678901, 1, 128, 4096, 65536, (1, 2)),
    Emit("front", R, 0, 3, (7, 8), M),
    Report(M, 3, (0, 2), is_step_over=True),
    Go(M),
    Joined(R, 2, ReplicaIndex(3)),
    Close("front", R, 0, Reason.LENGTH, 9, "", Usage(2, 4)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_equal(message):
    assert unpack(pack(message)) == message


@pytest.mark.parametrize(
    ("frames", "complaint"),
    [
        ([b"\x01\x00"], "expected a header of 2 bytes"),
        ([b"\x01", b""], "expected a header of 2 bytes"),
        ([bytes([SCHEMA + 1, 0]), b""], f"schema {SCHEMA + 1}, but this process speaks {SCHEMA}"),
        ([bytes([SCHEMA, 200]), b""], "unknown kind 200"),
        ([bytes([SCHEMA, 0]), b"\xc1"], "Handoff"),
        ([bytes([SCHEMA, 5]), b"\x80"], "missing required field `request_id`"),
        ([bytes([SCHEMA, 0]), b"\x91" * 5000], "Handoff"),
        (pack(MESSAGES[0].replaced(base="2")), r"Handoff: Expected `int`, got `str` - at `\$.base`"),
        (pack(MESSAGES[0].replaced(seen=(4, "4"))), r"Handoff: Expected `int`, .* at `\$.seen\[1\]`"),
        (pack(MESSAGES[11].replaced(reason="bored")), r"Close: Invalid enum value 'bored' - at `\$.reason`"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(frames, complaint):
    with pytest.raises(RemoteProtocolError, match=complaint):
        unpack(frames)


def test_a_body_over_the_limit_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr("router_backend.handoff.codec.FRAME_BYTES_MAX", 10)

    with pytest.raises(RemoteProtocolError, match="over the limit of 10"):
        unpack(pack(Admit(request())))
