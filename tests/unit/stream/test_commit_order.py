"""Order and uniqueness of an answer's tokens, whoever sends them and when."""

import pytest

from router_backend.core.effects import Emit
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex, RequestId
from router_backend.stream.commit_order import CommitOrder, Committed

SMALL, LARGE = ModelIndex(0), ModelIndex(1)


def emit(position: int, *tokens: int, model: ModelIndex = SMALL) -> Emit:
    return Emit("front", RequestId("r"), 0, position, tokens, model)


def test_tokens_in_order_leave_at_once() -> None:
    order = CommitOrder(8)
    assert order.add(emit(0, 10, 11)) == [Committed(10, SMALL), Committed(11, SMALL)]
    assert order.add(emit(2, 12, model=LARGE)) == [Committed(12, LARGE)]
    assert order.length == 3


def test_a_token_waits_for_the_ones_before_it() -> None:
    order = CommitOrder(8)
    assert order.add(emit(2, 12, model=LARGE)) == []
    assert order.add(emit(1, 11)) == []
    assert order.held == 2
    assert [token.token_id for token in order.add(emit(0, 10))] == [10, 11, 12]
    assert order.held == 0


def test_duplicates_and_overlaps_leave_once() -> None:
    order = CommitOrder(8)
    order.add(emit(0, 10, 11))
    assert order.add(emit(0, 10, 11)) == []
    assert [token.token_id for token in order.add(emit(1, 11, 12))] == [12]
    order.add(emit(5, 15))
    order.add(emit(5, 15))
    assert order.held == 1


@pytest.mark.parametrize("wrong", [emit(-1, 1), emit(8, 1), emit(7, 1, 2)])
def test_a_position_that_the_answer_cannot_have_is_the_peers_fault(wrong: Emit) -> None:
    with pytest.raises(RemoteProtocolError, match="of 8 tokens"):
        CommitOrder(8).add(wrong)
