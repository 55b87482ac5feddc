"""Messages to bytes and back: typed msgpack with a schema number, strict, no pickle.

msgspec is a pure function of its arguments; besides this module only `core/record.py` knows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Sequences

import msgspec

from router_backend.core.effects import Close, Emit
from router_backend.core.errors import RemoteProtocolError
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

SCHEMA = 3
FRAME_BYTES_MAX = 64 * 1024 * 1024
FRAMES_PER_MESSAGE = 2
"""What `pack` makes of each message; a letter is the frames of several."""

_Asked = Admit | Abort | Beat | Emit | Close
Message = _Asked | Handoff | Admitted | Finished | Nack | Report | Go | Observation | Thresholds | Joined

_TYPES = (
    *(Handoff, Admitted, Finished, Nack, Admit, Abort, Beat, Emit, Close, Report, Go),
    *(Observation, Thresholds, Joined),
)
_HEADS = {message_type: bytes([SCHEMA, kind]) for kind, message_type in enumerate(_TYPES)}
_DECODERS: dict[bytes, msgspec.msgpack.Decoder[Message]] = {
    head: msgspec.msgpack.Decoder(message_type) for message_type, head in _HEADS.items()
}
_ENCODER = msgspec.msgpack.Encoder()


def pack(message: Message) -> tuple[bytes, bytes]:
    """Two frames: schema and kind, then the body."""
    return _HEADS[type(message)], _ENCODER.encode(message)


def messages_of(letter: Sequences[bytes]) -> Iterator[Sequences[bytes]]:
    """The frames of each message in a letter, unpacked one by one: a bad one costs the others nothing."""
    for first in range(0, max(1, len(letter)), FRAMES_PER_MESSAGE):
        yield letter[first : first + FRAMES_PER_MESSAGE]


def unpack(frames: Sequences[bytes]) -> Message:
    """The message in `frames`; raises RemoteProtocolError for anything that `pack` cannot have made."""
    decoder = _DECODERS.get(frames[0]) if len(frames) == FRAMES_PER_MESSAGE else None
    if decoder is None or len(frames[1]) > FRAME_BYTES_MAX:
        raise RemoteProtocolError(_fault_of(frames))
    try:
        return decoder.decode(frames[1])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"{_TYPES[frames[0][1]].__name__}: {error}") from error


def _fault_of(frames: Sequences[bytes]) -> str:
    """Why these can be no message, whatever is in the body."""
    if len(frames) != FRAMES_PER_MESSAGE or len(frames[0]) != 2:
        return f"expected a header of 2 bytes and a body, got {len(frames)} frames"
    schema, kind = frames[0]
    if schema != SCHEMA:
        return f"schema {schema}, but this process speaks {SCHEMA}: run one version"
    if kind >= len(_TYPES):
        return f"unknown kind {kind}"
    return f"body of {len(frames[1])} bytes is over the limit of {FRAME_BYTES_MAX}"
