"""Right texts are taken before the faults; clients ask until it is over. The server is a function here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tools.soaking import load
from tools.soaking.asking import Heard, Inputs, Place
from tools.soaking.load import Load, Reference, SoakError, needs, references
from tools.soaking.outcomes import Fate, Tally
from tools.soaking.work import Question, Way, asked

QUESTIONS = tuple(Question(f"turn {number:02d}", 4, 0.2) for number in range(3))


class Server:
    """As far as a place is made of it."""

    class ports:
        http, grpc = 1, 2


Answer = Callable[[Place, Way, Inputs, float | None], Heard]


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[tuple[Any, ...]]]:
    def use(answer: Answer) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def ask(where: Place, way: Way, inputs: Inputs, leave_s: float | None = None) -> Heard:
            calls.append((where.door, way, inputs["text_input"], leave_s))
            return answer(where, way, inputs, leave_s)

        monkeypatch.setattr(load, "ask", ask)
        return calls

    return use


def right(where: Place, way: Way, inputs: Inputs, leave_s: float | None) -> Heard:
    return Heard(f"after {inputs['text_input']}", 1, asked_at=5.0, ended_at=7.0)


def test_every_question_has_its_text_and_its_time(answering: Any) -> None:
    calls = answering(right)

    assert references(Server(), QUESTIONS) == [
        Reference(question, f"after {question.prompt}", 2.0) for question in QUESTIONS
    ]
    assert [call[:2] for call in calls] == [("token_router", Way.HTTP_WHOLE)] * 6


def test_a_question_with_two_texts_is_left_out_and_nothing_left_is_an_error(answering: Any) -> None:
    calls = answering(lambda _, way, inputs, leave_s: Heard(unsteady(inputs["text_input"], "turn 01"), 1))

    def unsteady(prompt: str, *which: str) -> str:
        """Another text at every call for these prompts."""
        return f"{prompt} {len(calls) if prompt in which else ''}"

    assert [one.question.prompt for one in references(Server(), QUESTIONS)] == ["turn 00", "turn 02"]
    with pytest.raises(SoakError, match="no question has the same answer twice"):
        references(Server(), QUESTIONS[1:2])


@pytest.mark.parametrize(
    ("heard", "why"), [(Heard("", 1, "TR_CAPACITY: x"), "TR_CAPACITY"), (Heard("a"), "no")]
)
def test_a_server_that_fails_before_any_fault_cannot_be_soaked(
    heard: Heard, why: str, answering: Any
) -> None:
    answering(lambda *_: heard)
    with pytest.raises(SoakError, match=f"before any fault: {why}"):
        references(Server(), QUESTIONS)


def test_only_an_answer_of_the_model_itself_shows_that_it_is_back(answering: Any) -> None:
    seen: list[Any] = []

    def answer(where: Place, way: Way, inputs: Inputs, leave_s: float | None) -> Heard:
        seen.append((inputs["routing_algorithm"], json.loads(str(inputs["routing_config"]))))
        return (Heard("", 1, "TR_PEER_LOST: large"), Heard("", 0), Heard("07", 1))[len(seen) - 1]

    answering(answer)
    assert [needs(Server(), "large") for _ in range(3)] == [False, False, True]
    assert seen == [("fixed", {"mode": "never", "entry": "large"})] * 3


def test_a_client_asks_in_order_until_it_is_over_and_counts_every_answer(answering: Any) -> None:
    known = [Reference(question, f"after {question.prompt}", 2.0) for question in QUESTIONS]
    shared = Load(Server(), known, 7, Tally(0.0))

    def answer(where: Place, way: Way, inputs: Inputs, leave_s: float | None) -> Heard:
        if len(calls) == 5:
            shared.over.set()
            return Heard("", 1, "TR_PEER_LOST: large is gone")
        return right(where, way, inputs, leave_s)

    calls = answering(answer)
    shared.client()

    wanted = [asked(number, 3, 7) for number in range(5)]
    assert calls == [
        (
            one.door,
            one.way,
            QUESTIONS[one.question].prompt,
            None if one.leave_after is None else 2.0 * one.leave_after,
        )
        for one in wanted
    ]
    assert (shared.tally.total(Fate.RIGHT), shared.tally.total(Fate.TOLD)) == (4, 1)
