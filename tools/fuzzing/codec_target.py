"""Damaged frames into the codec: a message or a RemoteProtocolError, nothing else.

What is a message must be one in full: it packs again, and the packed one is equal.
"""

from __future__ import annotations

from random import Random

from router_backend.core.errors import RemoteProtocolError
from router_backend.handoff.codec import SCHEMA, pack, unpack
from tools.fuzzing.messages import MESSAGES
from tools.fuzzing.mutations import damaged

KINDS = 20
"""More than there are."""


class CodecTarget:
    """See the module."""

    def trial(self, chance: Random) -> str:
        head, body = pack(chance.choice(MESSAGES))
        if chance.random() < 0.1:
            other = bytes([SCHEMA, chance.randrange(KINDS)])
            head = damaged(head, chance) if chance.random() < 0.5 else other
        frames = [head, damaged(body, chance)]
        return outcome_of(frames * 2 if chance.random() < 0.01 else frames)


def outcome_of(frames: list[bytes]) -> str:
    """What becomes of `frames`; raises where the codec raises what it must not."""
    try:
        message = unpack(frames)
    except RemoteProtocolError:
        return "refused"
    again = unpack(pack(message))
    # NaN is not equal to itself, but its text is.
    assert again == message or repr(again) == repr(message), (message, again)
    return type(message).__name__


def outcome_of_bytes(data: bytes) -> str:
    """For a fuzzer that thinks in bytes: two of head, the rest is the body."""
    return outcome_of([data[:2], data[2:]])
