"""One answer from its commits to its end."""

import pytest

from router_backend.core.effects import Close, Emit, Reason, TokenLogprobs, Usage
from router_backend.core.errors import RemoteProtocolError
from router_backend.core.request import ModelIndex, RequestId
from router_backend.stream.answer import Answer, Delivery, Ending, Terms, split_code

RID = RequestId("r")


class Letters:
    """Token n is the n-th letter; token 99 is half a character."""

    def __init__(self) -> None:
        self._half = False

    def step(self, token_id: int) -> str:
        self._half = token_id == 99
        return "" if self._half else chr(ord("a") + token_id)

    def finish(self) -> str:
        return "\ufffd" if self._half else ""


def emit(position: int, *tokens: int, model: int = 0) -> Emit:
    return Emit("front", RID, 0, position, tokens, ModelIndex(model))


def told(position: int, *tokens: int, model: int = 0, top: int = 0) -> Emit:
    """Token n has the log-probability -n, and the n tokens before it as its likeliest."""
    return emit(position, *tokens, model=model).replaced(logprobs=tuple(entry(n, top) for n in tokens))


def entry(token: int, top: int = 0) -> TokenLogprobs:
    return TokenLogprobs(-float(token), tuple((token - rank, -0.5) for rank in range(top)))


def close(length: int, reason: Reason = Reason.LENGTH, message: str = "") -> Close:
    return Close("front", RID, 0, reason, length, message, Usage(discarded=3, handoffs=2))


def streaming(**terms: object) -> Answer:
    return Answer(Terms(max_tokens=8, is_streaming=True, flush_tokens=2, flush_s=1.0, **terms), Letters())


def test_an_answer_streams_and_ends_once() -> None:
    answer = streaming()
    assert answer.on_emit(emit(0, 0), 0, 0.0) == [Delivery("a", (0,), (0,), chars=(1,))]
    assert answer.on_emit(emit(1, 1, model=1), 0, 0.1) == []
    assert answer.on_emit(emit(2, 2), 0, 0.2) == [Delivery("bc", (1, 2), (1, 0), chars=(1, 1))]
    ending = Ending(Reason.LENGTH, output_tokens=3, usage=Usage(3, 2))
    assert answer.on_close(close(3), 0.3) == [Delivery(ending=ending)]
    assert answer.is_finished and answer.is_closed
    assert answer.on_close(close(3), 1.0) == answer.on_emit(emit(3, 1), 0, 1.0) == []
    assert answer.on_tick(0, 9.0) == answer.end(Reason.ERROR) == []


def test_a_close_waits_for_the_commits_that_it_counts() -> None:
    answer = streaming()
    assert answer.on_close(close(2, Reason.STOP), 0.0) == []
    assert answer.on_emit(emit(1, 1, model=1), 0, 0.1) == []
    ending = Ending(Reason.STOP, output_tokens=2, usage=Usage(3, 2))
    assert answer.on_emit(emit(0, 0), 0, 0.2) == [Delivery("ab", (0, 1), (0, 1), ending, (1, 1))]


def test_commits_that_never_come_end_the_answer_with_an_error() -> None:
    answer = streaming(commits_late_s=2.0)
    answer.on_emit(emit(0, 0), 0, 0.0)
    answer.on_close(close(3), 1.0)
    assert answer.on_tick(0, 2.9) == []
    (last,) = answer.on_tick(0, 3.0)
    assert last.ending == Ending(
        Reason.ERROR, "TR_PROTOCOL", "tokens 1..3 of the answer never arrived", "", 1, Usage(3, 2)
    )


def test_a_stop_string_ends_the_answer_within_a_run_of_tokens() -> None:
    answer = streaming(stop=("cd",))
    shown = Delivery("ab", (0, 1, 2, 3), (0, 0, 0, 0), chars=(1, 1, 1, 1))
    assert answer.on_emit(emit(0, 0, 1, 2, 3, 4, 5), 0, 0.0) == [shown]
    assert answer.wants_abort
    assert answer.on_emit(emit(6, 6), 0, 0.1) == answer.on_tick(0, 0.1) == []
    ending = Ending(Reason.STOP, stop_text="cd", output_tokens=4, usage=Usage(3, 2))
    assert answer.on_close(close(7, Reason.CANCELLED), 0.1) == [Delivery(ending=ending)]


def test_a_stop_string_does_not_wait_long_for_what_the_answer_cost() -> None:
    answer = streaming(stop=("ab",), usage_late_s=0.25)
    assert answer.on_emit(emit(0, 0, 1), 0, 1.0) == answer.on_tick(0, 1.2) == []
    ending = Ending(Reason.STOP, stop_text="ab", output_tokens=2)
    assert answer.on_tick(0, 1.25) == [Delivery("", (0, 1), (0, 0), ending, (1, 1))]


def test_a_stop_string_after_the_close_ends_at_once() -> None:
    answer = streaming(stop=("b",))
    answer.on_close(close(3), 0.0)
    (last,) = answer.on_emit(emit(0, 0, 1, 2), 0, 0.0)
    assert last.ending == Ending(Reason.STOP, stop_text="b", output_tokens=2, usage=Usage(3, 2))


def test_an_error_after_a_stop_string_changes_nothing_for_the_client() -> None:
    answer = streaming(stop=("b",))
    answer.on_emit(emit(0, 0, 1), 0, 0.0)
    (last,) = answer.end(Reason.ERROR, "TR_PEER_LOST", "gone")
    assert last.ending == Ending(Reason.STOP, stop_text="b", output_tokens=2)


def test_a_stop_string_waits_for_the_least_number_of_tokens_and_is_shown_before_it() -> None:
    """F08: the match may begin within the first tokens; only its end must come after them."""
    answer = streaming(stop=("bc", "fg"), min_tokens=6)
    shown = Delivery("abcde", tuple(range(6)), (0,) * 6, chars=(1,) * 6)
    assert answer.on_emit(emit(0, 0, 1, 2, 3, 4, 5), 0, 0.0) == [shown]
    assert answer.on_emit(emit(6, 6, model=1), 0, 0.0) == []
    ending = Ending(Reason.STOP, stop_text="fg", output_tokens=7, usage=Usage(3, 2))
    assert answer.on_close(close(7), 0.0) == [Delivery("", (6,), (1,), ending, (1,))]


def test_half_a_stop_string_comes_out_at_the_end() -> None:
    answer = streaming(stop=("bx",))
    assert answer.on_emit(emit(0, 0), 0, 0.0) == [Delivery("a", (0,), (0,), chars=(1,))]
    assert answer.on_emit(emit(1, 1), 0, 5.0) == []
    (last,) = answer.on_close(close(2), 5.0)
    assert (last.text, last.token_ids) == ("b", (1,))


def test_a_character_that_stays_incomplete_gives_one_replacement() -> None:
    answer = streaming()
    answer.on_emit(emit(0, 0, 99), 0, 0.0)
    (last,) = answer.on_close(close(2), 0.0)
    assert last.text == "\ufffd"


def test_the_incomplete_end_can_complete_a_stop_string() -> None:
    answer = streaming(stop=("a\ufffd",))
    answer.on_emit(emit(0, 0, 99), 0, 0.0)
    (last,) = answer.on_close(close(2), 0.0)
    assert (last.text, last.ending and last.ending.stop_text) == ("", "a\ufffd")


def test_an_end_token_counts_but_has_no_text() -> None:
    answer = streaming(stop_ids=frozenset({25}))
    answer.on_close(close(2, Reason.STOP), 0.0)
    (last,) = answer.on_emit(emit(0, 0, 25), 0, 0.0)
    assert (last.text, last.token_ids) == ("a", (0, 25))


def test_an_answer_that_does_not_stream_is_one_delivery() -> None:
    answer = Answer(Terms(max_tokens=8, echo="prompt "), Letters())
    assert answer.on_emit(emit(0, 0, 1, 2), 10**6, 0.0) == []
    assert answer.on_tick(10**6, 100.0) == []
    (only,) = answer.on_close(close(3), 100.0)
    assert (only.text, only.token_ids) == ("prompt abc", (0, 1, 2))


def test_an_echo_is_in_front_of_the_first_text_only() -> None:
    answer = streaming(echo=">")
    pieces = [piece for now in range(3) for piece in answer.on_emit(emit(now, now), 0, float(now))]
    assert "".join(piece.text for piece in pieces) == ">abc"


def test_a_slow_reader_gets_one_large_piece_when_it_reads_again() -> None:
    answer = streaming(unsent_max=1)
    assert answer.on_emit(emit(0, 0, 1, 2, 3), 1, 0.0) == []
    assert answer.on_tick(0, 1.0) == [Delivery("abcd", (0, 1, 2, 3), (0, 0, 0, 0), chars=(1, 1, 1, 1))]


def test_a_reader_that_stays_slow_is_given_up() -> None:
    answer = streaming(unsent_max=1, slow_reader_s=2.0)
    answer.on_emit(emit(0, 0, 1), 1, 0.0)
    (last,) = answer.on_tick(1, 2.0)
    assert last.text == "ab"
    assert last.ending and (last.ending.reason, last.ending.code) == (Reason.CANCELLED, "TR_SLOW_READER")


def test_an_error_behind_the_answer_ends_it_with_what_is_there() -> None:
    answer = streaming()
    answer.on_emit(emit(0, 0), 0, 0.0)
    answer.on_emit(emit(1, 1), 0, 0.0)
    (last,) = answer.on_close(close(2, Reason.ERROR, "TR_RUNNER: engine: out of memory"), 0.0)
    ending = Ending(Reason.ERROR, "TR_RUNNER", "engine: out of memory", "", 2, Usage(3, 2))
    assert last == Delivery("b", (1,), (0,), ending, (1,))


def test_characters_per_token_divide_the_text_wherever_it_was_held_back() -> None:
    """What a token stands for is counted with the token, although its text leaves later."""
    answer = streaming(stop=("bcx",))
    deliveries = [*answer.on_emit(emit(0, 0, 1), 0, 0.0), *answer.on_emit(emit(2, 2, 3), 0, 0.1)]
    assert [(found.text, found.chars) for found in deliveries] == [("a", (1, 1)), ("bcd", (1, 1))]


def test_characters_that_a_stop_string_takes_away_are_counted_and_not_sent() -> None:
    answer = streaming(stop=("b",))
    answer.on_close(close(3), 0.0)
    (last,) = answer.on_emit(emit(0, 0, 1), 0, 0.0)
    assert (last.text, last.chars) == ("a", (1, 1))


def test_a_code_is_split_off_a_message() -> None:
    assert split_code("TR_PEER_LOST: gone: far") == ("TR_PEER_LOST", "gone: far")
    assert split_code("odd: message") == ("TR_ERROR", "odd: message")
    assert split_code("") == ("", "")


@pytest.mark.case("F28")
def test_every_token_has_its_log_probability_also_where_a_stop_string_cuts_the_answer() -> None:
    answer = streaming(logprobs=1, stop=("cd",))
    answer.on_emit(told(1, 1, 2, top=1), 0, 0.0)
    first = answer.on_emit(told(0, 0, top=1), 0, 0.0)
    last = answer.on_emit(told(3, 3, 4, 5, top=1), 0, 0.0) + answer.on_close(close(6), 0.0)

    sent = [(one.text, one.token_ids, one.logprobs) for one in first + last]
    assert sent == [
        ("ab", (0, 1, 2), (entry(0, 1), entry(1, 1), entry(2, 1))),
        ("", (3,), (entry(3, 1),)),
    ]
    assert last[-1].ending == Ending(Reason.STOP, "", "", "cd", 4, Usage(3, 2))


@pytest.mark.case("F28")
@pytest.mark.parametrize(
    ("asked", "sent"), [(None, told(0, 0)), (0, emit(0, 0)), (0, told(0, 0, top=1)), (1, told(0, 0, top=2))]
)
def test_log_probabilities_that_were_not_asked_for_or_are_missing_are_a_protocol_error(
    asked: int | None, sent: Emit
) -> None:
    with pytest.raises(RemoteProtocolError, match="log-probabilities"):
        streaming(logprobs=asked).on_emit(sent, 0, 0.0)
