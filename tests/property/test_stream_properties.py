"""An answer's text is one text, however tokens, models, messages and responses cut it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from router_backend.core.effects import Close, Emit, Reason
from router_backend.core.request import ModelIndex, RequestId
from router_backend.stream.answer import Answer, Delivery, Terms

LETTERS = "abc"


class Cuts:
    """Token n of the answer has the n-th part of the text."""

    def __init__(self, parts: list[str]) -> None:
        self._parts = parts

    def step(self, token_id: int) -> str:
        return self._parts[token_id]

    def finish(self) -> str:
        return ""


@dataclass(frozen=True)
class Case:
    parts: list[str]
    models: list[int]
    stop: tuple[str, ...]
    deliveries: list[int]
    """Order in which commits arrive, each at least once."""
    close_after: int
    gaps: list[float]
    min_tokens: int

    @property
    def passed(self) -> int:
        """Characters of the first `min_tokens` tokens."""
        return len("".join(self.parts[: self.min_tokens]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    parts = draw(st.lists(st.text(LETTERS, max_size=3), min_size=1, max_size=12))
    count = len(parts)
    repeats = draw(st.lists(st.integers(0, count - 1), max_size=4))
    arrivals = draw(st.permutations([*range(count), *repeats]))
    return Case(
        parts,
        draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)),
        tuple(draw(st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=3))),
        arrivals,
        draw(st.integers(0, len(arrivals))),
        draw(st.lists(st.floats(0, 0.1), min_size=len(arrivals), max_size=len(arrivals))),
        draw(st.integers(0, count)),
    )


def played(case: Case, is_streaming: bool) -> list[Delivery]:
    """Everything that leaves when the commits of `case` arrive as it says."""
    terms = Terms(
        len(case.parts),
        case.stop,
        min_tokens=case.min_tokens,
        is_streaming=is_streaming,
        flush_tokens=3,
        flush_s=0.05,
    )
    answer = Answer(terms, Cuts(case.parts))
    close = Close("front", RequestId("r"), 0, Reason.LENGTH, len(case.parts))
    out: list[Delivery] = []
    now = 0.0
    for index, position in enumerate(case.deliveries):
        now += case.gaps[index]
        if index == case.close_after:
            out += answer.on_close(close, now)
        model = ModelIndex(case.models[position])
        out += answer.on_emit(Emit("front", RequestId("r"), 0, position, (position,), model), 0, now)
        out += answer.on_tick(0, now)
    return out + answer.on_close(close, now)


def until_stop(text: str, stops: tuple[str, ...], passed: int) -> tuple[str, str]:
    """The definition: cut at the first stop string to end behind `passed` characters, longest of equals."""
    for end in range(passed + 1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, ""


@given(cases())
def test_every_way_of_arriving_gives_the_same_answer(case: Case) -> None:
    streamed, whole = played(case, True), played(case, False)
    text, stop = until_stop("".join(case.parts), case.stop, case.passed)
    for deliveries in (streamed, whole):
        assert "".join(delivery.text for delivery in deliveries) == text
        assert all(delivery.ending is None for delivery in deliveries[:-1])
        ending = deliveries[-1].ending
        assert ending and (ending.stop_text, ending.reason is Reason.STOP) == (stop, bool(stop))
    assert len(whole) == 1


@given(cases())
def test_tokens_and_sources_are_those_up_to_the_stop(case: Case) -> None:
    for is_streaming in (True, False):
        deliveries = played(case, is_streaming)
        tokens = [token for delivery in deliveries for token in delivery.token_ids]
        sources = [model for delivery in deliveries for model in delivery.sources]
        text, stop = until_stop("".join(case.parts), case.stop, case.passed)
        sizes = [len("".join(case.parts[:count])) for count in range(1, len(case.parts) + 1)]
        enough = (count for count, size in enumerate(sizes, 1) if stop and size >= len(text + stop))
        expected = next(enough, len(case.parts))
        assert tokens == list(range(expected))
        assert sources == case.models[:expected]
        assert deliveries[-1].ending and deliveries[-1].ending.output_tokens == expected


@given(cases())
def test_no_more_is_held_back_than_a_stop_string_could_need(case: Case) -> None:
    answer = Answer(
        Terms(len(case.parts), case.stop, is_streaming=True, flush_tokens=1, flush_s=0.0), Cuts(case.parts)
    )
    sent = ""
    for position, part in enumerate(case.parts):
        emit = Emit("front", RequestId("r"), 0, position, (position,), ModelIndex(0))
        sent += "".join(delivery.text for delivery in answer.on_emit(emit, 0, 0.0))
        if answer.wants_abort:
            break
        held = "".join(case.parts[: position + 1])[len(sent) :]
        assert len(held) <= max((len(stop) - 1 for stop in case.stop), default=0) or not part
