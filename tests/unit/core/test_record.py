"""A record is frozen, whole, and small on its way."""

from __future__ import annotations

import gc

import msgspec
import pytest

from router_backend.core.effects import Emit
from router_backend.core.record import Record
from router_backend.core.request import ModelIndex, RequestId

COMMIT = Emit("front", RequestId("r"), 2, 3, (7, 8), ModelIndex(1))


def test_a_record_never_changes():
    with pytest.raises(AttributeError, match="immutable"):
        COMMIT.position = 4  # type: ignore[misc]


def test_a_replaced_record_is_another_one_that_differs_in_what_was_named():
    later = COMMIT.replaced(position=4, token_ids=(9,))
    assert later == Emit("front", RequestId("r"), 2, 4, (9,), ModelIndex(1))
    assert COMMIT.position == 3


def test_a_field_that_a_record_has_not_cannot_be_replaced():
    with pytest.raises(TypeError, match="place"):
        COMMIT.replaced(place=4)


def test_records_of_two_classes_are_never_equal():
    class Other(Record, frozen=True):
        home: str

    class Another(Record, frozen=True):
        home: str

    assert Other("front") == Other("front") != Another("front")


def test_defaults_do_not_travel_and_are_there_again_on_arrival():
    body = msgspec.msgpack.encode(COMMIT)

    assert "logprobs" not in msgspec.msgpack.decode(body)
    assert msgspec.msgpack.decode(body, type=Emit) == COMMIT


def test_no_garbage_collector_looks_at_a_record():
    assert not gc.is_tracked(COMMIT)
