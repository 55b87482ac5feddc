"""A dead OpenAI server comes back, more slowly every time, and Triton never notices."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tools.serving.openai_keeper import OpenAIKeeper
from tools.serving.revival import BACKOFF_S_FIRST, BACKOFF_S_MAX
from tools.triton_layout import ServerError


@dataclass
class FakeChild:
    """Starts as often as `answers` says; the last answer stays."""

    answers: list[bool] = field(default_factory=lambda: [True])
    is_alive: bool = False
    starts: int = 0
    stops: int = 0
    url: str = ""
    log: Path = Path("openai.log")

    def start(self, triton: str) -> None:
        self.starts += 1
        if not (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]):
            raise ServerError("no fastapi here")
        self.is_alive, self.url = True, "http://here:8003"

    def stop(self) -> None:
        self.stops += 1


def kept(child: FakeChild) -> tuple[OpenAIKeeper, list[str]]:
    said: list[str] = []
    return OpenAIKeeper(child, "here:8001", said.append), said


def test_a_server_that_lives_is_left_alone() -> None:
    keeper, said = kept(child := FakeChild())
    assert keeper.open() == "http://here:8003"
    for second in range(5):
        keeper.turn(float(second))
    assert (child.starts, child.stops, said) == (1, 0, [])


def test_a_server_that_ended_is_started_again_after_a_pause_and_both_are_said() -> None:
    keeper, said = kept(child := FakeChild())
    keeper.open()
    child.is_alive = False
    keeper.turn(10.0)
    keeper.turn(10.0 + BACKOFF_S_FIRST / 2)
    assert (child.starts, child.stops) == (1, 1)
    keeper.turn(10.0 + BACKOFF_S_FIRST)
    assert (child.starts, child.is_alive) == (2, True)
    assert said == [
        "The OpenAI server ended by itself; Triton goes on. Its last words: openai.log",
        "The OpenAI server is back at http://here:8003",
    ]


def test_pauses_grow_while_it_cannot_be_started_and_have_a_bound() -> None:
    keeper, said = kept(child := FakeChild([True, False]))
    keeper.open()
    child.is_alive = False
    tried = []
    for second in range(600):
        before = child.starts
        keeper.turn(float(second))
        tried += [second] * (child.starts - before)
    pauses = [later - earlier for earlier, later in zip([0, *tried], tried, strict=False)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 32]
    assert set(pauses[6:]) == {BACKOFF_S_MAX}
    assert said[1] == "no fastapi here; trying again later"


def test_one_that_never_could_run_here_is_not_tried_again() -> None:
    keeper, said = kept(child := FakeChild([False]))
    assert keeper.open() == ""
    for second in range(100):
        keeper.turn(float(second))
    assert (child.starts, said) == (1, ["no fastapi here\nTriton serves without it."])
