"""The golden scenarios: what a scheduler does to a sequence, each compared with computing it in one go.

They cover every row of trtllm.md section 4. A scenario plays on a `Stepper` and returns the readings that
must not depend on how the engine got there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from python_backend.runner.resuming import Resume, ResumingRunner
from router_backend.core.errors import RunnerError
from tools.trtllm_check.stepper import Reading, Stepper, Text
from tools.trtllm_check.verdict import Outcome, Verdict

Play = Callable[[Stepper, "Words"], list[Reading]]


@dataclass(frozen=True, slots=True)
class Words:
    """Token ids to make texts of; block sizes are the engine's, so lengths are given in blocks and tokens."""

    ids: tuple[int, ...]
    block_size: int

    def part(self, begin: int, blocks: int, tokens: int) -> list[int]:
        """`blocks` blocks and `tokens` tokens from `begin` on, starting over at the end."""
        count = blocks * self.block_size + tokens
        return [self.ids[(begin + offset) % len(self.ids)] for offset in range(count)]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    play: Play


def _chunks(stepper: Stepper, words: Words) -> list[Reading]:
    text = stepper.text(words.part(0, 3, 1))
    stepper.step((text, words.block_size + 3))
    return stepper.fed(text)


def _mixed(stepper: Stepper, words: Words) -> list[Reading]:
    old, other = stepper.text(words.part(0, 1, 2)), stepper.text(words.part(5, 2, 0))
    _grown(old, stepper.fed(old))
    return stepper.fed(old, other)


def _parked(stepper: Stepper, words: Words) -> list[Reading]:
    away, *others = (stepper.text(words.part(begin, 1, 3)) for begin in (0, 7, 11))
    _grown_all([away, *others], stepper.fed(away, *others))
    for _ in range(2):
        _grown_all(others, stepper.fed(*others))
    away.tokens += words.part(3, 0, 2)
    return stepper.fed(away, *others)


def _back_with_one(stepper: Stepper, words: Words) -> list[Reading]:
    text = stepper.text(words.part(2, 1, 1))
    stepper.fed(text)
    text.tokens += words.part(9, 0, 1)
    return stepper.fed(text)


def _discarded(stepper: Stepper, words: Words) -> list[Reading]:
    return _taken_back(stepper, words, 1)


def _rolled_back(stepper: Stepper, words: Words) -> list[Reading]:
    return _taken_back(stepper, words, words.block_size + 2)


def _taken_back(stepper: Stepper, words: Words, count: int) -> list[Reading]:
    text = stepper.text(words.part(1, 2, 1))
    stepper.fed(text)
    del text.tokens[-count:]
    text.cached = len(text.tokens)
    text.tokens += words.part(4, 0, 1)
    return stepper.fed(text)


def _asked_again(stepper: Stepper, words: Words) -> list[Reading]:
    text = stepper.text(words.part(6, 1, 2))
    first = stepper.fed(text)
    text.cached -= 1
    return [*first, *stepper.fed(text)]


def _evicted(stepper: Stepper, words: Words) -> list[Reading]:
    text = stepper.text(words.part(8, 2, 1))
    _grown(text, stepper.fed(text))
    stepper.release(text)
    return stepper.fed(text)


def _long_answer(stepper: Stepper, words: Words) -> list[Reading]:
    text = stepper.text(words.part(0, 1, 0))
    readings = stepper.fed(text)
    for _ in range(words.block_size + 2):
        _grown(text, readings)
        readings = stepper.fed(text)
    return readings


PARKED = Scenario("parked, back with three tokens inside a block beside decodes", _parked)
SCENARIOS = (
    Scenario("a prompt in two chunks, cut inside a block", _chunks),
    Scenario("a prompt beside a decode", _mixed),
    PARKED,
    Scenario("parked, back with one token", _back_with_one),
    Scenario("a token taken back, another in its place", _discarded),
    Scenario("more than a block taken back", _rolled_back),
    Scenario("asked again with nothing new", _asked_again),
    Scenario("evicted, computed anew in other blocks", _evicted),
    Scenario("an answer longer than a block, token by token", _long_answer),
)


def _grown(text: Text, readings: Sequence[Reading]) -> None:
    text.tokens.append(readings[0].token)


def _grown_all(texts: Sequence[Text], readings: Sequence[Reading]) -> None:
    for text, reading in zip(texts, readings, strict=True):
        text.tokens.append(reading.token)


def scenario_verdicts(stepper: Stepper, words: Words, tolerance: float) -> Iterator[Verdict]:
    """One line per scenario; `tolerance` is relative to the largest logit."""
    for scenario in SCENARIOS:
        faults, largest = _compared(scenario, stepper, words, tolerance)
        if faults and scenario is PARKED:
            faults += _ways_around(stepper, words, tolerance)
        detail = "; ".join(faults) if faults else f"differs by at most {largest:.1e}"
        yield Verdict(Outcome.FAIL if faults else Outcome.PASS, scenario.name, detail)


def _compared(
    scenario: Scenario, stepper: Stepper, words: Words, tolerance: float
) -> tuple[list[str], float]:
    try:
        readings = scenario.play(stepper, words)
        pairs = [(reading, stepper.recomputed(reading.text)) for reading in readings]
    except RunnerError as error:
        return [f"the engine refused: {error}"], 0.0
    finally:
        stepper.clear()
    differences = [difference(one, other) for one, other in pairs]
    faults = [fault for one, other in pairs if (fault := disagreement(one, other, tolerance))]
    return faults, max(differences)


def _ways_around(stepper: Stepper, words: Words, tolerance: float) -> list[str]:
    """Which of the two fallbacks the engine can be served with."""
    good = []
    for resume in (Resume.ALIGN, Resume.ONE_BY_ONE):
        other = Stepper(ResumingRunner(stepper.runner, resume))
        if not _compared(PARKED, other, words, tolerance)[0]:
            good.append(resume.value)
    return [
        f"set `resume: {good[0]}` for this model ({' and '.join(good)} passed)"
        if good
        else "no way around it"
    ]


def difference(one: Reading, other: Reading) -> float:
    """Largest difference of the logits that both name, relative to the largest logit; infinite for NaN."""
    mine = zip(one.ids.tolist(), one.logits.tolist(), strict=True)
    known = dict(zip(other.ids.tolist(), other.logits.tolist(), strict=True))
    both = [(value, known[token]) for token, value in mine if token in known]
    if not both:
        return float("inf")
    ours, theirs = np.array(both, np.float64).T
    worst = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    if one.hidden is not None and other.hidden is not None:
        worst = max(worst, float(np.abs(one.hidden - other.hidden).max() / np.abs(other.hidden).max()))
    return worst if np.isfinite(worst) else float("inf")


def disagreement(one: Reading, other: Reading, tolerance: float) -> str:
    """Empty if both say the same: close logits, and the same token unless the two best are as close."""
    worst = difference(one, other)
    if worst > tolerance:
        return f"differs by {worst:.1e}, more than {tolerance:g}"
    if one.token != other.token and not is_near_tie(other, tolerance):
        return f"chooses token {one.token}, not {other.token}"
    return ""


def is_near_tie(reading: Reading, tolerance: float) -> bool:
    """Whether the two best logits are closer than what may differ."""
    best, second = (float(value) for value in reading.logits[:2])
    return best - second <= tolerance * abs(best)
