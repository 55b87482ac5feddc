"""Letters on a byte stream: how several frames of several lengths share one connection.

Owns the wire format: little-endian uint32 number of frames, one uint32 length per frame, the frames. Must
never trust a length. The invariant: what `Letterbox.take` gives is what `packed` was given, in order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from python_backend.transport.base import Frames

FRAMES_MAX = 65_536
_COUNT = struct.Struct("<I")


class LetterError(ValueError):
    """Bytes that are not a letter, or a longer one than is taken: the connection is of no use any more."""


def packed(frames: Frames) -> bytes:
    """The letter with these frames."""
    lengths = struct.pack(f"<{len(frames) + 1}I", len(frames), *(len(frame) for frame in frames))
    return b"".join((lengths, *frames))


class Letterbox:
    """Bytes in as they come, whole letters out."""

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._bytes: bytes | bytearray = b""

    def put(self, data: bytes) -> None:
        self._bytes += data

    def take(self) -> Iterator[Frames]:
        """Every letter that is complete; LetterError at a length beyond the limits, not waited for."""
        begin = 0
        while (lengths := self._lengths(begin)) is not None:
            body = begin + _COUNT.size * (1 + len(lengths))
            end = body + sum(lengths)
            if end > len(self._bytes):
                break
            yield self._cut(body, lengths)
            begin = end
        if begin or isinstance(self._bytes, bytes):
            rest = self._bytes[begin:]
            # What waits for more must grow in place; mostly nothing does, and letters are cut from what came.
            self._bytes = bytearray(rest) if rest else b""

    def _lengths(self, begin: int) -> tuple[int, ...] | None:
        """Of the frames of the letter at `begin`; None while they have not all arrived."""
        if len(self._bytes) < begin + _COUNT.size:
            return None
        (count,) = _COUNT.unpack_from(self._bytes, begin)
        if not 0 < count <= FRAMES_MAX:
            raise LetterError(f"a letter of {count} frames: 1 to {FRAMES_MAX} are taken")
        if len(self._bytes) < begin + _COUNT.size * (1 + count):
            return None
        lengths = struct.unpack_from(f"<{count}I", self._bytes, begin + _COUNT.size)
        if max(lengths) > self._frame_bytes_max:
            raise LetterError(f"a frame of {max(lengths)} bytes: {self._frame_bytes_max} are taken")
        return lengths

    def _cut(self, body: int, lengths: tuple[int, ...]) -> list[bytes]:
        frames = []
        for length in lengths:
            frames.append(bytes(self._bytes[body : body + length]))
            body += length
        return frames
