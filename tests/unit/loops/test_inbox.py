"""The queue in front of a loop."""

from __future__ import annotations

import threading
import time

import pytest

from python_backend.loops.inbox import Inbox
from router_backend.core.errors import CapacityError

BOUND_S = 20.0


def test_items_leave_in_the_order_they_came() -> None:
    inbox: Inbox[int] = Inbox()
    for number in range(3):
        inbox.put(number)

    assert (len(inbox), inbox.drain(), inbox.drain(), len(inbox)) == (3, [0, 1, 2], [], 0)


def test_what_is_put_together_is_drained_together() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put_all([1, 2])
    inbox.wait(None)
    inbox.put_all([3])

    assert (len(inbox), inbox.drain()) == (2, [1, 2, 3])


def test_what_ended_a_wait_is_drained_first() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.put(1)
    inbox.wait(None)
    inbox.put(2)
    inbox.wait(None)

    assert (len(inbox), inbox.drain()) == (2, [1, 2])


def test_a_wait_ends_at_its_time_on_the_given_clock() -> None:
    inbox: Inbox[int] = Inbox(clock=lambda: 100.0)
    inbox.wait(100.001)
    inbox.wait(3.0)

    assert inbox.drain() == []


def test_a_wake_ends_a_wait_and_is_no_item() -> None:
    inbox: Inbox[int] = Inbox()
    inbox.wake()
    inbox.wait(None)
    inbox.put(1)
    inbox.wake()

    assert inbox.drain() == [1]


def test_an_item_from_another_thread_ends_a_wait() -> None:
    inbox: Inbox[str] = Inbox()
    waiter = threading.Thread(target=inbox.wait, args=(None,))
    waiter.start()
    inbox.put("late")
    waiter.join(BOUND_S)

    assert not waiter.is_alive()
    assert inbox.drain() == ["late"]


def test_a_full_inbox_is_the_producers_error_and_loses_nothing() -> None:
    inbox: Inbox[int] = Inbox(capacity=2)
    inbox.put(1)
    inbox.put(2)
    with pytest.raises(CapacityError, match=r"an inbox holds 2 items"):
        inbox.put(3)

    assert inbox.drain() == [1, 2]


def test_many_producers_lose_nothing_and_keep_their_own_order() -> None:
    inbox: Inbox[tuple[int, int]] = Inbox()

    def produce(producer: int) -> None:
        for number in range(2000):
            inbox.put((producer, number))

    threads = [threading.Thread(target=produce, args=(producer,)) for producer in range(4)]
    for thread in threads:
        thread.start()
    arrived: list[tuple[int, int]] = []
    give_up = time.monotonic() + BOUND_S
    while len(arrived) < 8000 and time.monotonic() < give_up:
        inbox.wait(time.monotonic() + 0.1)
        arrived += inbox.drain()
    for thread in threads:
        thread.join()

    by_producer = [[number for producer, number in arrived if producer == p] for p in range(4)]
    assert by_producer == [list(range(2000))] * 4
