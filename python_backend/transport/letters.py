"""Letters on a byte stream: how several frames of several lengths share one connection.

Owns the wire format: a little-endian uint32 length, then so many bytes of msgpack, a list of the frames
(one call of a compiled codec: what is done here delays every hand-off). Must never trust a length. The
invariant: what `Letterbox.take` gives is what `packed` was given, in order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from python_backend.transport.base import Frames

FRAMES_OF_MOST_BYTES = 4
"""So many of the longest frames fit a letter: the first contacts of a batch of long prompts."""
_LENGTH = struct.Struct("<I")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[bytes])


class LetterError(ValueError):
    """Bytes that are not a letter, or a longer one than is taken: the connection is of no use any more."""


def packed(frames: Frames) -> bytes:
    """The letter with these frames, at least one."""
    body = _ENCODER.encode(frames)
    return _LENGTH.pack(len(body)) + body


class Letterbox:
    """Bytes in as they come, whole letters out."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._letter_bytes_max = FRAMES_OF_MOST_BYTES * frame_bytes_max
        self._bytes: bytes | bytearray = b""

    def put(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> Iterator[list[bytes]]:
        """Every letter that is complete; LetterError at a length beyond the limit, not waited for."""
        begin = 0
        while (end := self._end(begin)) <= len(self._bytes):
            yield self._frames(self._bytes[begin + _LENGTH.size : end])
            begin = end
        if begin or isinstance(self._bytes, bytes):
            rest = self._bytes[begin:]
            # What waits for more must grow in place; mostly nothing does.
            self._bytes = bytearray(rest) if rest else b""

    def _end(self, begin: int) -> int:
        """Where the letter at `begin` ends, at least a length's size behind it."""
        if len(self._bytes) < begin + _LENGTH.size:
            return begin + _LENGTH.size
        (length,) = _LENGTH.unpack_from(self._bytes, begin)
        if length > self._letter_bytes_max:
            raise LetterError(f"a letter of {length} bytes: {self._letter_bytes_max} are taken")
        return begin + _LENGTH.size + int(length)

    def _frames(self, body: bytes | bytearray) -> list[bytes]:
        try:
            frames = _DECODER.decode(body)
        except msgspec.DecodeError as error:
            raise LetterError(f"not a list of frames: {error}") from error
        if not frames:
            raise LetterError("a letter without a frame")
        longest = max(map(len, frames))
        if longest > self._frame_bytes_max:
            raise LetterError(f"a frame of {longest} bytes: {self._frame_bytes_max} are taken")
        return frames
