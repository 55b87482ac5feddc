"""Each piece becomes the tensors of its door."""

from __future__ import annotations

from typing import Any

from python_backend.loops.base import Ask, Finish, Piece
from python_backend.server.outputs import (
    Arrays,
    RouterShape,
    TextShape,
    TokensShape,
    error_text,
    joined,
)
from python_backend.server.tensors import Asked, Returns
from router_backend.core.effects import Reason

EVERYTHING = Returns(True, True, True, True)
PIECE = Piece(text="ab", token_ids=(4, 5), sources=(0, 1), prompt_tokens=3, chars=(2, 0))
END = Piece(
    text="c",
    token_ids=(6,),
    sources=(1,),
    prompt_tokens=3,
    finish=Finish(Reason.STOP, stop_text="d", discarded_tokens=2, handoffs=4),
    chars=(1,),
)
BROKEN = Piece(finish=Finish(Reason.ERROR, code="TR_PEER_LOST", message="large is gone"))


def told(arrays: Arrays) -> dict[str, Any]:
    return {name: (array.dtype.name, array.tolist()) for name, array in arrays.items()}


def test_without_wishes_the_text_door_gives_text_and_nothing_else() -> None:
    shape = TextShape(Asked(Ask()))
    assert told(shape.arrays(PIECE)) == {"text_output": ("object", [b"ab"])}
    assert told(shape.arrays(END)) == {"text_output": ("object", [b"c"])}


def test_with_all_wishes_the_text_door_tells_counts_once_and_ends_at_the_end() -> None:
    shape = TextShape(Asked(Ask(), EVERYTHING))
    assert told(shape.arrays(PIECE)) == {
        "text_output": ("object", [b"ab"]),
        "num_input_tokens": ("uint32", [3]),
        "num_output_tokens": ("uint32", [2]),
        "token_source": ("int32", [0, 1]),
        "token_chars": ("int32", [2, 0]),
    }
    assert told(shape.arrays(END)) == {
        "text_output": ("object", [b"c"]),
        "num_output_tokens": ("uint32", [1]),
        "token_source": ("int32", [1]),
        "token_chars": ("int32", [1]),
        "num_switches": ("int32", [4]),
        "num_discarded_tokens": ("int32", [2]),
        "finish_reason": ("object", [b"stop"]),
        "stop_reason": ("object", [b"d"]),
    }
    assert shape.keepalive() is None


def test_an_answer_that_is_not_whole_says_so_unasked() -> None:
    cancelled = Piece(finish=Finish(Reason.CANCELLED))
    assert told(TextShape(Asked(Ask())).arrays(cancelled))["finish_reason"] == ("object", [b"cancelled"])


def test_the_router_echoes_the_uid_in_every_response_and_has_one_row() -> None:
    shape = RouterShape(Asked(Ask(), EVERYTHING, uid=2**63))
    assert told(shape.arrays(PIECE)) == {
        "text": ("object", [[b"ab"]]),
        "request_uid": ("uint64", [[2**63]]),
        "output_ids": ("int32", [[[4, 5]]]),
        "sequence_length": ("int32", [[2]]),
        "num_input_tokens": ("int32", [[3]]),
        "num_output_tokens": ("int32", [[2]]),
        "token_source": ("int32", [[0, 1]]),
        "token_chars": ("int32", [[2, 0]]),
    }


def test_the_router_tells_an_error_as_data() -> None:
    arrays = told(RouterShape(Asked(Ask(), uid=1)).arrays(BROKEN))
    assert arrays["finish_reason"] == ("object", [[b"error"]])
    assert arrays["error_message"] == ("object", [[b"TR_PEER_LOST: large is gone"]])
    assert arrays["output_ids"] == ("int32", [[[]]])


def test_only_a_streaming_ensemble_is_kept_alive() -> None:
    driven = RouterShape(Asked(Ask(is_streaming=True), uid=5))
    assert told(driven.keepalive() or {}) == {"text": ("object", [[b""]]), "request_uid": ("uint64", [[5]])}
    assert RouterShape(Asked(Ask(), uid=5)).keepalive() is None
    alone = RouterShape(Asked(Ask(is_streaming=True)))
    assert (alone.keepalive(), alone.is_driven, driven.is_driven) == (None, False, True)


def test_a_subserver_gives_ids_their_number_and_why_it_ended() -> None:
    shape = TokensShape(Asked(Ask()))
    assert told(shape.arrays(END)) == {
        "output_ids": ("int32", [[[6]]]),
        "sequence_length": ("int32", [[1]]),
        "finish_reason": ("object", [[b"stop"]]),
    }
    assert shape.keepalive() is None


def test_pieces_joined_are_the_whole_answer() -> None:
    assert joined([PIECE, END]) == Piece("abc", (4, 5, 6), (0, 1, 1), 3, END.finish, (2, 0, 1))
    assert joined([]) == Piece()


def test_an_error_starts_with_its_code_once() -> None:
    assert error_text(Finish(Reason.ERROR, "TR_X", "why")) == "TR_X: why"
    assert error_text(Finish(Reason.ERROR, "TR_X", "TR_X: why")) == "TR_X: why"
    assert error_text(Finish(Reason.ERROR)) == "TR_ERROR: the request failed"
