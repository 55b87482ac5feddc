"""Small damage to bytes and values, decided by a seeded generator alone.

Owns no knowledge of what it damages. The invariant: the same generator state gives the same damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

EDITS_MAX = 4
SPAN_MAX = 9
WHOLE = (0, 1, -1, 2, 7, 127, 128, 255, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64 - 1)
"""Where whole numbers change their width or their sign."""
FRACTIONS = (0.0, -0.0, 0.5, 1.0, 1e-12, -1.0, 2.0, 1e30, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", " ", "a", "\0", "é", "\U0001f600", "\u4e2d\u6587", "{}", "null", "-1", "1e999", "x" * 300)


def damaged(data: bytes, chance: Random) -> bytes:
    """`data` after one to four edits."""
    for _ in range(min(chance.randint(1, EDITS_MAX), chance.randint(1, EDITS_MAX))):
        data = chance.choice(_EDITS)(data, chance)
    return data


def whole(chance: Random) -> int:
    near = chance.choice(WHOLE)
    return near if chance.random() < 0.6 else near + chance.randint(-3, 3)


def narrowed(value: int, low: int, high: int) -> int:
    """`value` as a machine word from `low` to `high` holds it."""
    return (value - low) % (high - low + 1) + low


def fraction(chance: Random) -> float:
    return chance.choice(FRACTIONS) if chance.random() < 0.7 else chance.uniform(-3, 3)


def text(chance: Random) -> str:
    chosen = chance.choice(TEXTS)
    return chosen if chance.random() < 0.7 else chosen + chr(chance.randrange(0xD800))


def _flipped(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    flipped = bytes([data[at] ^ 1 << chance.randrange(8)]) if at < len(data) else b"\xff"
    return data[:at] + flipped + data[at + 1 :]


def _marked(data: bytes, chance: Random) -> bytes:
    """A byte that opens a container, a long text, a float or an extension in msgpack."""
    at = _place(data, chance)
    return data[:at] + bytes([chance.randrange(0x80, 0x100)]) + data[at + 1 :]


def _cut(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[at + chance.randint(1, SPAN_MAX) :]


def _grown(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + chance.randbytes(chance.randint(1, SPAN_MAX)) + data[at:]


def _doubled(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    span = data[at : at + chance.randint(1, SPAN_MAX)]
    return data[:at] + span * chance.randint(2, 40) + data[at:]


def _shortened(data: bytes, chance: Random) -> bytes:
    return data[: _place(data, chance)]


def _place(data: Sequence[int], chance: Random) -> int:
    return chance.randrange(len(data) + 1)


_EDITS = (_flipped, _flipped, _marked, _cut, _grown, _doubled, _shortened)
