"""What is asked is decided by a seed, mixed as promised, and inside what the models can hold."""

from __future__ import annotations

from collections import Counter

from tools.soaking.deployment import REPOSITORY
from tools.soaking.work import (
    CANCEL_P,
    CUTOFFS,
    DOORS,
    MAX_TOKENS,
    WORDS_MAX,
    Question,
    Way,
    asked,
    demo_prompts,
    questions,
)

PROMPTS = ("turn lift 01", "fold push spin 02")


def test_the_same_seed_asks_the_same_and_another_does_not() -> None:
    assert questions(PROMPTS, 20, 1) == questions(PROMPTS, 20, 1) != questions(PROMPTS, 20, 2)
    assert [asked(number, 20, 1) for number in range(50)] == [asked(number, 20, 1) for number in range(50)]
    assert [asked(number, 20, 1) for number in range(50)] != [asked(number, 20, 2) for number in range(50)]


def test_short_prompts_and_long_ones_take_turns_under_every_cutoff() -> None:
    found = questions(demo_prompts(REPOSITORY / "demo_prompts.json"), 200, 0)

    words = [len(question.prompt.split(" ")) for question in found]
    assert set(words[::2]) == {13}
    assert 50 <= min(words[1::2]) < 200 < 1000 < max(words[1::2]) <= WORDS_MAX
    lengths = [question.max_tokens for question in found]
    assert (min(lengths), max(lengths) > MAX_TOKENS // 2, max(lengths) <= MAX_TOKENS) == (1, True, True)
    assert {question.cutoff for question in found[::2]} == set(CUTOFFS)


def test_every_door_is_asked_in_every_way_and_a_fifth_goes_away() -> None:
    found = [asked(number, 7, 0) for number in range(3000)]

    ways = Counter((one.door, one.way) for one in found)
    assert set(ways) == {(door, way) for door in DOORS for way in Way}
    assert min(ways.values()) > 400
    leaving = [one.leave_after for one in found if one.leave_after is not None]
    assert abs(len(leaving) / len(found) - CANCEL_P) < 0.03
    assert all(0.0 <= after < 1.0 for after in leaving)
    assert {one.question for one in found} == set(range(7))


def test_a_question_is_greedy_and_goes_on_beyond_the_end_token() -> None:
    assert Question("turn 01", 9, 0.2).tensors() == {
        "text_input": "turn 01",
        "max_tokens": 9,
        "ignore_eos": True,
        "routing_algorithm": "r_stitch",
        "routing_config": '{"cutoff": 0.2}',
        "return_finish_reason": True,
    }
