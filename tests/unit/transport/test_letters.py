"""Letters on a byte stream come out as they went in, however the stream is cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_backend.transport.letters import FRAMES_OF_MOST_BYTES, Letterbox, LetterError, packed

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


def test_a_letter_over_the_limit_is_refused_before_its_bytes_arrive() -> None:
    box = Letterbox(frame_bytes_max=10)
    box.put(struct.pack("<I", 10 * FRAMES_OF_MOST_BYTES + 1))

    with pytest.raises(LetterError, match="a letter of 41 bytes: 40 are taken"):
        list(box.take())


def test_a_frame_over_the_limit_is_refused() -> None:
    box = Letterbox(frame_bytes_max=10)
    box.put(packed([b"small", b"x" * 11]))

    with pytest.raises(LetterError, match="a frame of 11 bytes: 10 are taken"):
        list(box.take())


@pytest.mark.parametrize(
    ("body", "complaint"),
    [(b"", "not a list"), (b"\x90", "without a frame"), (b"\x91\x05", "not a list"), (b"\x91", "not a list")],
)
def test_what_is_no_list_of_frames_is_refused(body: bytes, complaint: str) -> None:
    box = Letterbox(frame_bytes_max=10)
    box.put(struct.pack("<I", len(body)) + body)

    with pytest.raises(LetterError, match=complaint):
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
