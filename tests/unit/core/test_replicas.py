"""Numbers of subservers, and which of several is taken."""

from __future__ import annotations

from collections import Counter

from router_backend.core.replicas import ReplicaIndex, Replicas, least_loaded
from router_backend.core.request import RequestId


def numbers(*given: int) -> tuple[ReplicaIndex, ...]:
    return tuple(map(ReplicaIndex, given))


def test_without_further_replicas_a_number_is_the_models() -> None:
    plain = Replicas((1, 1, 1))
    assert (plain.models, len(plain), plain.is_single) == ((0, 1, 2), 3, True)


def test_first_replicas_come_first() -> None:
    found = Replicas((2, 1, 3))
    assert found.models == (0, 1, 2, 0, 2, 2)
    assert [found.of(model) for model in range(3)] == [numbers(0, 3), numbers(1), numbers(2, 4, 5)]
    assert not found.is_single


def test_the_least_loaded_is_taken_and_nobody_of_none() -> None:
    assert least_loaded(numbers(1, 2, 3), [0, 5, 2, 4], RequestId("a")) == 2
    assert least_loaded((), [0, 0], RequestId("a")) is None


def test_equals_are_spread_by_the_requests_id_and_always_alike() -> None:
    picked = [least_loaded(numbers(1, 2), [0, 3, 3], RequestId(f"r{index}")) for index in range(200)]
    again = [least_loaded(numbers(1, 2), [0, 3, 3], RequestId(f"r{index}")) for index in range(200)]
    assert picked == again
    assert min(Counter(picked).values()) > 70
