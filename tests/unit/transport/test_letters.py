"""Letters on a byte stream come out as they went in, however the stream is cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backend.transport.letters import FRAMES_MAX, Letterbox, LetterError, packed

LETTERS = st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=5), max_size=8)


@given(LETTERS, st.integers(1, 50))
def test_letters_come_out_whole_and_in_order_however_the_stream_is_cut(
    letters: list[list[bytes]], piece: int
) -> None:
    stream = b"".join(packed(letter) for letter in letters)
    box = Letterbox(frame_bytes_max=40)
    taken = []
    for begin in range(0, len(stream), piece):
        box.put(stream[begin : begin + piece])
        taken += box.take()

    assert taken == letters


def test_a_frame_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    box = Letterbox(frame_bytes_max=10)
    box.put(struct.pack("<2I", 1, 11))

    with pytest.raises(LetterError, match="a frame of 11 bytes: 10 are taken"):
        list(box.take())


@pytest.mark.parametrize("count", [0, FRAMES_MAX + 1])
def test_an_impossible_number_of_frames_is_refused(count: int) -> None:
    box = Letterbox(frame_bytes_max=10)
    box.put(struct.pack("<I", count))

    with pytest.raises(LetterError, match=f"a letter of {count} frames"):
        list(box.take())


@given(st.binary(max_size=200))
def test_any_bytes_give_letters_or_a_refusal(data: bytes) -> None:
    box = Letterbox(frame_bytes_max=64)
    box.put(data)
    try:
        taken = list(box.take())
    except LetterError:
        return

    assert all(letter for letter in taken)
