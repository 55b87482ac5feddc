"""Which stream an id means, and that no live id is given twice."""

from __future__ import annotations

import pytest

from python_backend.server.response_stream import ResponseStream, Sender
from python_backend.server.stream_book import DuplicateIdError, StreamBook
from tests.unit.server.test_response_stream import FakeWire


def stream() -> ResponseStream:
    return Sender(1.0, lambda stream: None).open(FakeWire())


def test_a_stream_is_found_under_its_ids_until_it_closes() -> None:
    book, mine = StreamBook(), stream()
    book.enter(mine, "me", 7)
    assert (book.by_id("me"), book.by_uid(7)) == (mine, mine)
    mine.put_empty()
    mine.deliver()
    assert (book.by_id("me"), book.by_uid(7)) == (None, None)


def test_an_id_in_use_is_refused_and_its_owner_keeps_it() -> None:
    book, mine, other = StreamBook(), stream(), stream()
    book.enter(mine, "me", None)
    with pytest.raises(DuplicateIdError, match="TR_ALREADY_EXISTS: id: 'me'"):
        book.enter(other, "me", 8)
    other.put_empty()
    other.deliver()
    assert (book.by_id("me"), book.by_uid(8)) == (mine, None)


def test_empty_ids_are_nobodys() -> None:
    book = StreamBook()
    book.enter(stream(), "", None)
    book.enter(stream(), "", None)
    assert book.by_id("") is None
